"""Builds the compiled kernels; where there is no compiler, rlmem falls back to NumPy and says so."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "rlmem.lean._kernels",
            ["src/rlmem/lean/kernels.c"],
            extra_compile_args=["-O3", "-std=c11"],
            optional=True,
        )
    ]
)
