"""The public API is the root's ``__all__``, and changes to it are deliberate."""

from __future__ import annotations

import rlmem


def test_the_public_api_is_what_it_was():
    assert rlmem.__all__ == [
        "Component",
        "EnvironmentReadError",
        "FrameworkRun",
        "GenericRun",
        "InputError",
        "Machine",
        "MissingExtra",
        "Phase",
        "Plan",
        "RlmemError",
        "Run",
        "RunFileError",
        "ScriptError",
        "format_bytes",
        "load_run",
        "parse_bytes",
        "plan",
        "read_machine",
    ]
    assert all(hasattr(rlmem, name) for name in rlmem.__all__)


def test_plan_stays_a_function_beside_the_package_of_that_name():
    import rlmem.plan.layers

    assert rlmem.plan("examples/trading/run.yaml").parameters == 1_297_935


def test_a_plan_prints_as_its_table():
    text = str(rlmem.plan("examples/trading/run.yaml"))
    assert text.startswith("FITS  trading")
    assert "buffer/observations" in text
