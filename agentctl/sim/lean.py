"""Kernels stay LLVM code until the function around them is compiled.

numba optimises every function, its callees included, and makes machine code of it: with a hundred kernels
that call each other, most of that is done again and again, and nobody ever runs it. Here a kernel is only
lowered; the entry or rule that calls it is optimised, made machine code of and cached with all kernels in it.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A kernel's LLVM code and that of its callees, to be linked into others."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):  # type: ignore[misc]
    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        context = state.targetctx
        state.library = KernelLibrary(context.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        # what Python would call, without code
        uncalled = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), state.func_id.func_name, "", 0, lowered.env, (state.library,)
        )
        state["cr"] = lowered._replace(cfunc=uncalled)
        context.insert_user_function(uncalled, lowered.fndesc, [state.library])
        return True


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (KernelLowering, words) if one is NativeLowering else (one, words) for one, words in passes.passes
        ]
        passes._finalized = False
        passes.finalize()
        return [passes]
