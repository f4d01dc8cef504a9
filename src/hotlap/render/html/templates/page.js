"use strict";
// Draws the charts over their still pictures and lets timelines be zoomed. Without it the page is whole, only still.
(() => {
  const options = {
    actions: false, // no links to elsewhere
    ast: true, // expressions are interpreted: the page's policy forbids code made from text
    defaultStyle: false,
    renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  };
  const DEEPEST = 1e5; // how many times a timeline can be magnified

  const draw = async (figure) => {
    const place = figure.querySelector(".drawing");
    const still = place.querySelector(".still");
    const live = document.createElement("div");
    live.className = "live";
    still.replaceWith(live);
    try {
      const drawn = JSON.parse(document.getElementById(`drawn-${figure.dataset.chart}`).textContent);
      const { view } = await window.vegaEmbed(live, drawn, options);
      if ("zooms" in figure.dataset) zoomable(figure, place, view);
      searchable(figure, view);
      figure.dataset.ready = "";
    } catch (error) {
      live.replaceWith(still);
      console.error(`The chart ${figure.dataset.chart} stays still:`, error);
    }
  };

  const zoomable = (figure, place, view) => {
    const whole = view.signal("to");
    const range = figure.querySelector(".range");
    const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });
    let from = 0;
    let to = whole;

    const show = (start, end) => {
      const length = Math.min(whole, Math.max(whole / DEEPEST, end - start));
      from = Math.min(Math.max(0, start), whole - length);
      to = from + length;
      range.textContent = `${number.format(from)} to ${number.format(to)} ${figure.dataset.unit}`;
      return view.signal("from", from).signal("to", to).runAsync();
    };
    const magnify = (factor, around = (from + to) / 2) =>
      show(around - (around - from) / factor, around + (to - around) / factor);
    const move = (share) => show(from + share * (to - from), to + share * (to - from));
    const oneStep = () => {
      const starts = view.data("steps").map((it) => it.start);
      const next = starts.find((it) => it >= from - whole / 1e6) ?? starts[0];
      return show(next, starts.find((it) => it > next) ?? whole);
    };
    const actions = {
      in: () => magnify(2),
      out: () => magnify(0.5),
      earlier: () => move(-0.5),
      later: () => move(0.5),
      step: oneStep,
      all: () => show(0, whole),
    };
    const keys = {
      "+": actions.in, "=": actions.in, "-": actions.out, "0": actions.all,
      ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2),
    };

    const left = () => place.querySelector("svg").getBoundingClientRect().left + view.origin()[0];
    const timeAt = (x) => from + ((x - left()) / view.width()) * (to - from);

    for (const button of figure.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", actions[button.dataset.zoom]);
    }
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") place.blur();
      if (!(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
    place.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== place) return;
      event.preventDefault();
      magnify(event.deltaY < 0 ? 1.25 : 0.8, timeAt(event.clientX));
    }, { passive: false });
    place.addEventListener("dblclick", actions.all);
    selectable(place, (start, end) => show(timeAt(start), timeAt(end)));
    for (const it of figure.querySelectorAll(".zoom, .needs-script")) it.hidden = false;
    show(0, whole);
  };

  // What is not sought fades, and the number of hits is said; with two parts also the time that the hits cover in each.
  const searchable = (figure, view) => {
    const field = figure.querySelector("[data-search]");
    if (!field) return;
    const spans = view.data("spans").map((it) => ({ ...it, name: it.name.toLowerCase(), part: it.row.split("|")[0] }));
    const parts = [...new Set(spans.map((it) => it.part))];
    const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
    const time = (hits, part) =>
      `${number.format(covered(hits.filter((it) => it.part === part)))} ${figure.dataset.unit} ${part}`;
    field.addEventListener("input", () => {
      const sought = field.value.trim().toLowerCase();
      const hits = spans.filter((it) => it.name.includes(sought));
      const times = parts.length > 1 ? `: ${parts.map((it) => time(hits, it)).join(", ")}` : "";
      figure.querySelector(".matches").textContent = sought ? `${hits.length} of ${spans.length} match${times}` : "";
      view.signal("sought", sought).runAsync();
    });
  };

  // How much of the axis spans cover: what is nested, or at the same time elsewhere, counts once.
  const covered = (spans) => {
    let reached = -Infinity;
    let sum = 0;
    for (const it of [...spans].sort((one, other) => one.start - other.start)) {
      sum += Math.max(0, it.end - Math.max(it.start, reached));
      reached = Math.max(reached, it.end);
    }
    return sum;
  };

  // Dragging across the drawing selects a stretch; a click, which moves less than a few pixels, selects nothing.
  const selectable = (place, selected) => {
    const mark = document.createElement("div");
    mark.className = "selection";
    let start = null;
    place.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = event.clientX;
      place.focus({ preventScroll: true });
      place.setPointerCapture(event.pointerId);
    });
    place.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const box = place.getBoundingClientRect();
      mark.style.left = `${Math.min(start, event.clientX) - box.left}px`;
      mark.style.width = `${Math.abs(event.clientX - start)}px`;
      place.append(mark);
    });
    const finish = (event) => {
      mark.remove();
      if (start === null) return;
      const [one, other] = [Math.min(start, event.clientX), Math.max(start, event.clientX)];
      start = null;
      if (event.type === "pointerup" && other - one > 4) selected(one, other);
    };
    place.addEventListener("pointerup", finish);
    place.addEventListener("pointercancel", finish);
  };

  // Commands can be copied, where the browser lets a page write to the clipboard.
  for (const button of document.querySelectorAll(".copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
        button.textContent = "Copied";
      } catch (error) {
        button.textContent = "Not copied";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // On paper nothing can be opened.
  const closed = [];
  window.addEventListener("beforeprint", () => {
    for (const it of document.querySelectorAll("details:not([open])")) {
      closed.push(it);
      it.open = true;
    }
  });
  window.addEventListener("afterprint", () => {
    for (const it of closed.splice(0)) it.open = false;
  });

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  Promise.all(figures.map(draw)).then(() => { document.documentElement.dataset.drawn = ""; });
})();
