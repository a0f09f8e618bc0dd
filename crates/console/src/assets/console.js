// What moves by itself: the parts of a page that change, and charts. Everything else works without.
"use strict";
// A page that the browser has kept to go back to is asked for again: its visitor may have signed out.
addEventListener("pageshow", event => { if (event.persisted) location.reload(); });

(() => {
  const EVERY_MS = 2000;
  const MINUTES = 10;
  const source = document.body.dataset.live;
  if (!source) return;

  const control = document.querySelector(".live-control");
  const pause = document.getElementById("pause");
  const state = document.getElementById("live-state");
  const charts = new Map();
  let paused = false;
  let ended = false;
  let fails = 0;

  // Spoken by screen readers, so only what changes seldom.
  const say = text => { if (state.textContent !== text) state.textContent = text; };
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Nobody loses the link that they stand on, or the text that they have selected.
  const isInUse = part => {
    const selection = document.getSelection();
    const selects = selection && !selection.isCollapsed && selection.rangeCount && selection.getRangeAt(0).intersectsNode(part);
    return selects || (part.contains(document.activeElement) && part !== document.activeElement);
  };

  const show = parts => {
    for (const part of document.querySelectorAll("[data-part]")) {
      const html = parts[part.dataset.part];
      if (html === undefined || part.lastHtml === html || isInUse(part)) continue;
      part.lastHtml = html;
      part.innerHTML = html;
    }
  };

  const lonely = values => values.flatMap((value, at) => value != null && values[at - 1] == null && values[at + 1] == null ? [at] : []);
  const clock = time => new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const exactly = time => new Date(time * 1000).toLocaleTimeString([], { hourCycle: "h23" });

  // Ten minutes, or what there is of them: a gateway that has just started would show one stroke at the edge.
  const begins = ([times, ...lines], last) => {
    const first = times.find((_, at) => lines.some(line => line[at] != null));
    return Math.max(last - MINUTES * 60, Math.min(first ?? last, last - 60));
  };

  const build = element => {
    const unit = element.dataset.unit;
    const text = value => value == null ? "–" : (value >= 100 ? Math.round(value) : +value.toFixed(value < 1 ? 2 : 1)) + unit;
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const lines = element.dataset.lines.split("|").map((label, at) => ({
      label, stroke: color(`--line-${at + 1}`), width: 2, dash: at === 0 ? [] : at === 1 ? [7, 3] : [2, 3],
      // A line of one point would not be seen.
      points: { show: true, size: 3, filter: (chart, line) => lonely(chart.data[line]) }, value: (_, value) => value == null ? "" : text(value),
    }));
    return new uPlot({
      width: element.clientWidth, height: 180,
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { range: (chart, _, last) => [begins(chart.data, last), last] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [
        { ...axis, space: 60, size: 28, incrs: [15, 30, 60, 120, 300], values: (_, times, __, ___, step) => times.map(step < 60 ? exactly : clock) },
        { ...axis, size: 62, values: (_, values) => values.map(text) },
      ],
      series: [{ label: "Time", value: (_, time) => time == null ? "" : exactly(time) }, ...lines],
    }, [[], ...lines.map(() => [])], element);
  };

  const draw = data => {
    for (const element of document.querySelectorAll("[data-chart]")) {
      const points = data[element.dataset.chart];
      if (!points || typeof uPlot === "undefined") continue;
      if (!charts.has(element)) charts.set(element, build(element));
      charts.get(element).setData([points.times, ...points.lines]);
    }
  };

  const redraw = () => {
    if (ended) return;
    for (const chart of charts.values()) chart.destroy();
    charts.clear();
    update();
  };

  const update = async () => {
    try {
      const answer = await fetch(source, { headers: { accept: "application/json" }, cache: "no-store" });
      // Nobody is signed in any more, or may look no more: each further question would count as an attempt of a stranger.
      if ([401, 403].includes(answer.status)) {
        ended = true;
        say("You are signed out, or may not look any more. What is shown is old.");
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      const { parts, charts } = await answer.json();
      show(parts);
      draw(charts);
      fails = 0;
      say(paused ? "Updates are paused." : "");
    } catch {
      fails += 1;
      if (fails === 3) say("The gateway does not answer. What is shown is old.");
    }
  };

  const tick = async () => {
    if (!paused && !document.hidden) await update();
    if (!ended) setTimeout(tick, EVERY_MS);
  };

  pause.addEventListener("click", () => {
    if (ended) return;
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    say(paused ? "Updates are paused." : "");
    if (!paused) update();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) {
      width = innerWidth;
      for (const [element, chart] of charts) chart.setSize({ width: element.clientWidth, height: 180 });
    }
  });
  control.hidden = false;
  tick();
})();
