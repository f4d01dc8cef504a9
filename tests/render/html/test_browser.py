"""The page in a real browser: opened from disk, with scripts and without, in the dark, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHARTS = {"replicates", "step-series", "step-histogram", "steps", "levers", "ceilings", "losses", "difference",
          "loader", "batch-search", "batch-search-memory", "batch-sizes", "memory-peaks", "memory", "memory-account",
          "flame", "timeline", "candidates", "loss-scale", "scaling"}  # fmt: skip
TEXT_CONTRAST, LARGE_TEXT_CONTRAST, GRAPHICS_CONTRAST = 4.5, 3.0, 3.0
"""Web Content Accessibility Guidelines 2.2, criteria 1.4.3 and 1.4.11, level AA."""

# For each piece of text: its colour, its background colour, its size, and the text. Half-transparent colours are
# blended with those behind them.
COLOURS_OF_TEXTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const it of colours) { canvas.fillStyle = it; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const behind = (element) => {
    const layers = [];
    for (let it = element; it; it = it.parentElement) layers.unshift(getComputedStyle(it).backgroundColor);
    return ["white", ...layers];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const drawn = element.closest("svg") !== null;
    const colour = drawn ? style.fill : style.color;
    const bold = Number(style.fontWeight) >= 700;
    const layers = behind(element);
    found.push({
      text: walker.currentNode.data.trim().slice(0, 60), on: rgb(layers), of: rgb([...layers, colour]),
      large: parseFloat(style.fontSize) >= (bold ? 18.66 : 24),
    });
  }
  return found;
}"""
COLOURS_OF_VARIABLES = """(names) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const probe = document.body.appendChild(document.createElement("i"));
  return names.map((name) => {
    probe.style.color = `var(--${name})`;
    canvas.fillStyle = getComputedStyle(probe).color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  });
}"""


@contextmanager
def opened(browser: Browser, path: Path, *, width: int = 1100, height: int = 800, **options: Any) -> Iterator[Page]:
    """Open the page and wait for its charts; fail on any request or console message."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda it: trouble.append(f"{it.type}: {it.text}"))
    page.on("pageerror", lambda it: trouble.append(f"error: {it}"))
    page.on("request", lambda it: None if it.url.startswith(("file:", "data:")) else trouble.append(it.url))
    page.goto(path.as_uri())
    if options.get("java_script_enabled", True):
        page.wait_for_selector("html[data-drawn]")
    yield page
    assert not trouble
    context.close()


def contrast(one: list[int], other: list[int]) -> float:
    """The contrast ratio of two colours by WCAG 2.2."""

    def luminance(colour: list[int]) -> float:
        linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in (c / 255 for c in colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def shown_range(page: Page) -> tuple[float, float]:
    first, last = page.inner_text("#figure-timeline .range").removesuffix(" ms").split(" to ")
    return float(first.replace(",", "")), float(last.replace(",", ""))


def test_the_page_opens_without_errors_or_requests(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page) as page:
        drawn = page.eval_on_selector_all("figure[data-ready]", "them => them.map(it => it.dataset.chart)")
        assert set(drawn) == CHARTS
        assert page.locator(".live svg").count() == len(CHARTS)
        assert page.locator(".still").count() == 0
        for name in CHARTS:
            box = page.locator(f"#figure-{name} .live svg").bounding_box()
            assert box is not None and box["width"] > 400 and box["height"] > 60, name
        assert (
            page.locator("#figure-levers .live svg path[aria-roledescription], #figure-levers .live path").count() > 5
        )


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_first_screen_holds_the_answer(browser: Browser, full_page: Path, width: int, height: int) -> None:
    """The sentence, what changed, the figures and the next command are seen without scrolling."""
    with opened(browser, full_page, width=width, height=height) as page:
        for name in ("h1", ".changes", ".facts", ".next"):
            box = page.locator(f".hero {name}").bounding_box()
            assert box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height, name


def test_contents_stay_in_view_on_a_wide_screen(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page, width=1280, height=900) as page:
        page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
        page.locator("#findings").scroll_into_view_if_needed()
        box = page.locator("nav a[href='#findings']").bounding_box()
        assert box is not None and 0 <= box["y"] < 900
        overlapping = page.evaluate("""() => {
          const right = document.querySelector("nav").getBoundingClientRect().right;
          return [...document.querySelectorAll("main > section")]
            .filter(it => it.getBoundingClientRect().left < right).length;
        }""")
        assert overlapping == 0


def test_a_command_can_be_copied(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.click(".next .copy")
        page.wait_for_function("() => document.querySelector('.next .copy').textContent === 'Copied'")
        assert page.evaluate("navigator.clipboard.readText()") == page.inner_text(".next code")
    with opened(browser, full_page, java_script_enabled=False) as page:
        assert page.locator(".next .copy").is_hidden()


def test_without_scripts_static_images_are_shown(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page, java_script_enabled=False) as page:
        assert page.locator(".still svg").count() == len(CHARTS)
        assert page.locator("#figure-timeline .zoom").is_hidden()
        page.locator("#figure-steps summary").click()
        assert page.locator("#figure-steps table").is_visible()


def test_text_that_looks_like_markup_stays_text(browser: Browser, hostile_page: Path) -> None:
    with opened(browser, hostile_page) as page:
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
        assert "<img src=x onerror='window.hacked=1'>" in page.inner_text("h1 ~ .what")
        assert "{{7*7}}" in page.inner_text("#findings")
        page.hover("#figure-timeline .live .mark-rect path >> nth=1")
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert "<img" in page.inner_text("#vg-tooltip-element")
        assert page.evaluate("window.hacked") is None


def test_no_injected_script_can_run(browser: Browser, full_page: Path, tmp_path: Path) -> None:
    """The content security policy must block even a script in the page."""
    spoilt = tmp_path / "spoilt.html"
    text = full_page.read_text(encoding="utf-8")
    spoilt.write_text(text.replace("</footer>", "</footer><script>window.hacked=1</script>"), encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(spoilt.as_uri())
    assert page.evaluate("window.hacked") is None
    context.close()


def test_spans_are_found_by_name(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page) as page:
        faded = """() => [...document.querySelectorAll("#figure-flame .live .mark-rect path")]
          .filter(it => getComputedStyle(it).fillOpacity < 0.1).length"""
        assert page.evaluate(faded) == 0
        page.fill("#figure-flame [data-search]", "  IMAGE ")
        page.wait_for_function(f"() => ({faded})() > 0")
        assert page.inner_text("#figure-flame .matches") == "2 of 18 match: 300 ms before, 75 ms after"
        assert page.evaluate(faded) == 16
        page.fill("#figure-flame [data-search]", "")
        page.wait_for_function(f"() => ({faded})() === 0")
        assert page.inner_text("#figure-flame .matches") == ""
        page.fill("#figure-timeline [data-search]", "ampere")
        assert page.inner_text("#figure-timeline .matches").endswith("match: 0.9 ms before, 0 ms after")
        page.fill("#figure-timeline [data-search]", "no such name")
        assert page.inner_text("#figure-timeline .matches").startswith("0 of ")
    with opened(browser, full_page, java_script_enabled=False) as page:
        assert page.locator("#figure-flame [data-search]").is_hidden()


def test_zoom_by_mouse(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page) as page:
        whole = shown_range(page)
        place = page.locator("#figure-timeline .drawing")
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.5 * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=3)
        assert page.locator(".selection").is_visible()
        page.mouse.up()
        first, last = shown_range(page)
        assert whole[0] < first < last < whole[1]
        assert 0.05 < (last - first) / (whole[1] - whole[0]) < 0.2
        page.mouse.wheel(0, -100)
        closer = shown_range(page)
        assert closer[1] - closer[0] < last - first
        page.mouse.dblclick(box["x"] + 0.5 * box["width"], middle)
        assert shown_range(page) == whole


def test_zoom_by_keyboard_alone(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page) as page:
        whole = shown_range(page)
        for _ in range(200):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('#figure-timeline .drawing')"):
                break
        else:
            raise AssertionError("the timeline cannot be reached")
        page.keyboard.press("+")
        page.keyboard.press("+")
        first, last = shown_range(page)
        assert (last - first) / (whole[1] - whole[0]) == pytest.approx(0.25, rel=0.01)
        page.keyboard.press("ArrowRight")
        assert shown_range(page)[0] == pytest.approx(first + 0.2 * (last - first), rel=0.01)
        page.keyboard.press("0")
        assert shown_range(page) == whole


def test_buttons_pan_and_zoom_the_drawing(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page) as page:
        axis = "#figure-timeline .live .role-axis-label text"
        labels = page.locator(axis).all_text_contents()
        page.click("#figure-timeline [data-zoom=step]")
        assert shown_range(page) == (0, 1)
        page.click("#figure-timeline [data-zoom=later]")
        assert shown_range(page) == (0.5, 1.5)
        page.wait_for_function(
            "(before) => [...document.querySelectorAll('#figure-timeline .live .role-axis-label text')]"
            ".map(it => it.textContent).join() !== before",
            arg=",".join(labels),
        )
        page.click("#figure-timeline [data-zoom=earlier]")
        page.click("#figure-timeline [data-zoom=in]")
        page.click("#figure-timeline [data-zoom=out]")
        page.click("#figure-timeline [data-zoom=all]")
        assert shown_range(page)[0] == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Browser, full_page: Path, scheme: str) -> None:
    with opened(browser, full_page, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true; })")
        texts = page.evaluate(COLOURS_OF_TEXTS)
        assert len(texts) > 300
        faint = [
            (it["text"], round(contrast(it["of"], it["on"]), 2))
            for it in texts
            if contrast(it["of"], it["on"]) < (LARGE_TEXT_CONTRAST if it["large"] else TEXT_CONTRAST)
        ]
        assert not faint


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_have_enough_contrast(browser: Browser, full_page: Path, scheme: str) -> None:
    names = [
        "as-it-is", "kept", "not-kept", "differ", "verified", "communication", "data-wait", "host-to-device", "forward",
        "backward", "optimizer", "other", "edge",
    ]  # fmt: skip
    with opened(browser, full_page, color_scheme=scheme) as page:
        paper, *colours = page.evaluate(COLOURS_OF_VARIABLES, ["paper", *names])
    faint = {name: round(contrast(it, paper), 2) for name, it in zip(names, colours, strict=True)}
    assert min(faint.values()) >= GRAPHICS_CONTRAST, faint


def test_the_theme_can_be_chosen_by_keyboard_without_scripts(browser: Browser, full_page: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, full_page, color_scheme="light") as page:
        light = page.evaluate(background)
        page.focus("#theme-auto")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == "theme-dark"
        dark = page.evaluate(background)
        assert dark != light
        page.emulate_media(media="print")
        assert page.evaluate(background) == light, "pages are printed on a light background"


@pytest.mark.parametrize("width", [360, 768])
def test_nothing_overflows_a_narrow_screen(browser: Browser, full_page: Path, width: int) -> None:
    with opened(browser, full_page, width=width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for name in CHARTS:
            cut = page.evaluate(
                """(name) => {
                    const svg = document.querySelector(`#figure-${name} .live svg`).getBoundingClientRect();
                    return [...document.querySelectorAll(`#figure-${name} .live svg text`)]
                        .filter(it => it.textContent && it.checkVisibility({ opacityProperty: true }))
                        .filter(it => it.getBoundingClientRect().right > svg.right + 1
                                      || it.getBoundingClientRect().left < svg.left - 1)
                        .map(it => it.textContent);
                }""",
                name,
            )
            assert not cut, name


def test_controls_have_names_and_ids_are_unique(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page) as page:
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('a, button, input, [tabindex="0"], [role]')].filter(it =>
                !(it.getAttribute('aria-label') || it.textContent.trim() || it.labels?.length)
                && !it.closest('svg') && !it.closest('[role=table]')).map(it => it.outerHTML.slice(0, 100))"""
        )
        assert not nameless
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(it => it.id)")
        assert len(ids) == len(set(ids))
        links = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(it => it.hash.slice(1))")
        assert set(links) <= set(ids)
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(it => Number(it.tagName[1]))")
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_nothing_is_hidden_in_print(browser: Browser, full_page: Path) -> None:
    with opened(browser, full_page) as page:
        made = page.pdf(format="A4", print_background=True)
        assert made.startswith(b"%PDF") and len(made) > 50_000
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0
