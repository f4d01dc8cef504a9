"""What reports say about the isolation of trials."""

from __future__ import annotations

import fakes

from hotlap.render.headline import headline
from hotlap.render.html.sections import what_was_done
from hotlap.render.json import study_json


def test_a_script_that_was_denied_a_write_is_not_blamed() -> None:
    found = headline(fakes.DENIED)
    assert found.sentence.startswith("The script failed in isolation: the kernel denied writing out/t.parquet")
    assert any("is why, not the script" in it for it in found.beside)
    assert "The script itself failed" not in what_was_done(fakes.DENIED)
    assert '"denied_path": "out/t.parquet"' in study_json(fakes.DENIED)
    assert not any("isolation" in it for it in headline(fakes.SCRIPT_FAILED).beside)
