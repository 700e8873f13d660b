"use strict";
// An environment by keyboard, buttons and sliders. The server holds the episode; the page sends actions.

let about, now; // what never changes, and the state
let queue = Promise.resolve(); // of requests
let waiting = 0; // those that are not answered
let running = false; // on the clock
let clocks = 0; // that were started; an older one may still wait for its step
let chosen = null; // the last action by hand, which the clock repeats where no action means none
let tapped = null; // the action of a key since the last step of the clock
const held = new Set(); // keys
const SHOWN = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };

function say(words, kind = "") {
  $("words").textContent = words;
  $("words").className = `words ${kind}`;
}

// One request after another; steps that come faster than answers are left out. A function says what to send once it is
// this request's turn.
function change(path, sent) {
  if (path === "step" && waiting > 1) return queue;
  waiting += 1;
  queue = queue.then(() => request(path, typeof sent === "function" ? sent() : sent));
  return queue;
}

async function request(path, sent) {
  const slow = setTimeout(() => say("Compiling: the first time takes some seconds."), 700);
  try {
    show(await ask(path, sent));
  } catch (error) {
    say(error.message, "bad");
    stop();
  } finally {
    clearTimeout(slow);
    waiting -= 1;
  }
}

// ---- what is shown

function show(state) {
  now = state;
  const over = state.terminated || state.truncated;
  $("waiting").hidden = true;
  $("time").textContent = number(state.time) + (state.limit ? ` / ${number(state.limit)}` : "");
  $("reward").textContent = numbers(state.reward);
  $("total").textContent = numbers(state.total);
  if (document.activeElement !== $("seed")) $("seed").value = state.seed;
  $("mission").hidden = !state.mission;
  $("mission").textContent = state.mission ? `Mission: ${state.mission}` : "";
  if (state.terminated) say("Terminated: the episode is over. Enter starts the next one.");
  else if (state.truncated) say("Truncated: the time is up. Enter starts the next one.");
  else if (state.edits) say(`On a level that was changed ${state.edits === 1 ? "once" : `${state.edits} times`}.`);
  else say(state.time ? "" : "A new episode.");
  $("picture").hidden = !state.picture;
  $("numbers").hidden = state.picture;
  if (state.picture) $("picture").src = `picture.png?v=${state.version}`;
  else $("numbers").replaceChildren(...observed(state.observation));
  $("observation").replaceChildren(...observed(state.observation));
  const terms = Object.entries(state.terms);
  $("terms").hidden = !terms.length;
  $("info").replaceChildren(...terms.map(([name, x]) => line(name, numbers(x))));
  showActions(state, over);
  showBoard(state.board);
}

const line = (name, value) => element("tr", {}, element("td", { textContent: name }), element("td", { textContent: value }));

function observed(parts) {
  return parts.flatMap((part) => {
    const head = element("p", { className: "soft", textContent: `${part.name} ${part.dtype} (${part.shape.join(", ")})` });
    if (!part.values) head.textContent += `, from ${number(part.least)} to ${number(part.greatest)}`;
    if (!part.values) return [head];
    const rows = part.values.map((x, i) => line(part.names[i] ?? `[${i}]`, number(x)));
    return [head, element("table", {}, ...rows)];
  });
}

function showActions(state, over) {
  const suggested = typeof state.suggested === "number" ? state.suggested : null;
  for (const button of document.querySelectorAll("[data-action]")) {
    const action = Number(button.dataset.action);
    button.disabled = over || (state.mask !== null && !state.mask[action]);
    button.classList.toggle("on", action === state.action);
  }
  $("act").disabled = over;
  const called = about.controls.actions?.[suggested]?.label ?? suggested;
  $("suggested").textContent = over || state.suggested === null ? "" : `it would: ${called ?? numbers([state.suggested].flat(2))}`;
}

// ---- cells

// Buttons of a grid; arrows go from one to the next.
function fill(grid, rows, columns, make) {
  const focused = [...grid.children].indexOf(document.activeElement);
  grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  grid.style.maxWidth = `${Math.min(420, 44 * columns)}px`;
  grid.replaceChildren(...Array.from({ length: rows * columns }, (_, cell) => make(cell)));
  const at = Math.max(focused, 0);
  [...grid.children].forEach((button, cell) => (button.tabIndex = cell === at ? 0 : -1));
  if (focused >= 0) grid.children[focused].focus();
  grid.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    const next = grid.children[[...grid.children].indexOf(event.target) + step];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (next) {
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  };
}

function showBoard(board) {
  $("level").hidden = !board;
  if (!board || !$("level").open) return; // a large one takes longer to build than a step
  const things = Object.keys(board.things);
  if ($("thing").options.length !== things.length) $("thing").replaceChildren(...things.map((x) => new Option(x)));
  const there = {};
  for (const thing of things) for (const cell of board.things[thing]) (there[cell] ??= []).push(thing);
  fill($("board"), board.rows, board.columns, (cell) => {
    const found = there[cell] ?? [];
    const letters = found.filter((x) => x !== "wall").map((x) => x[0].toUpperCase()).join("");
    const where = `row ${Math.floor(cell / board.columns) + 1}, column ${(cell % board.columns) + 1}`;
    const button = element("button", { type: "button", className: found.join(" "), textContent: letters });
    button.title = `${where}: ${found.join(", ") || "nothing"}`;
    button.setAttribute("aria-label", button.title);
    button.onclick = () => change("level", { thing: $("thing").value, cell });
    return button;
  });
}

// ---- acting

const keysOf = (keys) => keys.map((key) => element("kbd", { textContent: SHOWN[key] ?? key }));

function build() {
  const { kind, actions, entries, n, grid } = about.controls;
  if (kind === "discrete" && actions.length) {
    $("actions").append(...actions.map(({ label, keys }, i) => {
      const button = element("button", { type: "button" }, label, ...keysOf(keys.slice(0, 1)));
      button.dataset.action = i;
      button.onclick = () => act(i);
      button.hidden = label === "nothing" && actions.findIndex((other) => other.label === label) < i; // one is enough
      return button;
    }));
  } else if (kind === "discrete" && grid) {
    const cells = element("div", { className: "grid" });
    fill(cells, ...grid, (cell) => {
      const button = element("button", { type: "button", title: `action ${cell}` });
      button.dataset.action = cell;
      button.setAttribute("aria-label", button.title);
      button.onclick = () => act(cell);
      return button;
    });
    $("actions").append(element("p", { className: "soft", textContent: "Each cell is an action." }), cells);
  } else if (kind === "discrete") {
    const input = element("input", { type: "number", min: 0, max: n - 1, value: 0, id: "number" });
    const button = element("button", { type: "button", textContent: "Step", onclick: () => act(Number(input.value)) });
    $("actions").append(element("label", { className: "soft" }, `action, 0 to ${n - 1} `, input), button);
  } else if (kind === "multi") {
    for (const { name, n } of entries) {
      const select = element("select", { className: "value" }, ...Array.from({ length: n }, (_, i) => new Option(i, i)));
      $("actions").append(element("label", { className: "soft" }, `${name} `, select));
    }
    $("actions").append(element("button", { type: "button", textContent: "Step", onclick: () => act(byHand()) }));
  } else {
    for (const { name, low, high, neutral, keys } of entries) {
      const value = element("output", { textContent: number(neutral, 3) });
      const slider = element("input", { type: "range", className: "value", min: low, max: high, step: "any", value: neutral });
      slider.oninput = () => (value.textContent = number(Number(slider.value), 3));
      slider.ondblclick = () => set(slider, neutral);
      const label = element("label", { className: "entry" }, element("span", {}, name, ...keysOf(keys)), value, slider);
      $("actions").append(label);
      label.style.width = "100%";
    }
    $("actions").append(
      element("button", { type: "button", textContent: "Step", onclick: () => act(byHand()) }),
      element("button", { type: "button", textContent: "Centre", onclick: centre }),
    );
    $("own").textContent = "A key that is held pushes its slider to the end; sliders stay where they are put.";
    $("own").hidden = false;
  }
  if (about.agents > 1) {
    $("own").textContent = `There are ${about.agents} agents: the first is yours. ` + $("own").textContent;
    $("own").hidden = $("crowd").hidden = false;
  }
  $("policy").hidden = about.player === null;
  $("mutate").hidden = !about.levels.mutate;
  $("timer").hidden = kind === "discrete" && !actions.length && about.player === null;
  const { fps, every, real } = about.clock;
  $("clock").textContent = real ? "times the task's own time" : `${number(fps * every, 3)} steps a second at speed 1`;
}

function set(slider, value) {
  slider.value = value;
  slider.oninput();
}

function centre() {
  document.querySelectorAll("#actions input.value").forEach((slider, i) => set(slider, about.controls.entries[i].neutral));
}

// The action of sliders and choices, as held keys have it.
function byHand() {
  return [...document.querySelectorAll("#actions .value")].map((input, i) => {
    const { low, high, keys } = about.controls.entries[i];
    if (keys && held.has(keys[0]) !== held.has(keys[1])) return held.has(keys[0]) ? low : high;
    return Math.min(high ?? Infinity, Math.max(low ?? 0, Number(input.value)));
  });
}

function act(action, times = 1) {
  if (now.terminated || now.truncated) return say("The episode is over. Enter starts the next one.");
  if (action !== "policy") chosen = action;
  return change("step", { action, times, others: $("others").value });
}

// What the clock does next; null where it waits for a key.
function onClock() {
  const { kind, actions, idle } = about.controls;
  if (about.player !== null && $("follow").checked) return "policy";
  if (kind !== "discrete") return byHand();
  const pressed = actions.findIndex(({ keys }) => keys.some((key) => held.has(key)));
  if (pressed >= 0) return pressed;
  if (tapped !== null) return tapped;
  if (idle !== null) return idle;
  return about.clock.real ? chosen : null;
}

async function run() {
  const rate = () => about.clock.fps * about.clock.every * Number($("speed").value); // steps a second
  const mine = ++clocks;
  const ended = () => !running || mine !== clocks;
  let last = performance.now();
  while (!ended()) {
    await new Promise(requestAnimationFrame);
    if (ended()) return;
    const due = ((performance.now() - last) * rate()) / 1000;
    const action = onClock();
    if (action === null) last = performance.now();
    if (action === null || due < 1) continue;
    // Where the machine is too slow for the task's own time, it runs slower.
    const times = Math.max(1, Math.floor(Math.min(due, rate() / 10)));
    last = performance.now() - Math.min(((due - times) * 1000) / rate(), 50);
    tapped = null;
    await act(action, times);
    if (ended()) return;
    if (now.terminated || now.truncated) stop();
    else if (now.picture) await $("picture").decode().catch(() => {});
  }
}

function stop() {
  running = false;
  $("run").setAttribute("aria-pressed", "false");
  $("run").firstChild.textContent = "Run";
}

function toggle() {
  if (running) return stop();
  running = true;
  $("run").setAttribute("aria-pressed", "true");
  $("run").firstChild.textContent = "Pause";
  run();
}

// The same level again, or the next seed's.
const again = () => change("reset", {});
const next = () => change("reset", () => ({ seed: (now.seed + 1) % 2 ** 32 }));

window.addEventListener("keydown", (event) => {
  const { key, target } = event;
  const typing = target.matches("select, input:not([type=range]):not([type=checkbox]), summary");
  if (!now || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const onButton = target.matches("button, input[type=checkbox]");
  const letter = key.length === 1 ? key.toLowerCase() : key;
  const { kind, actions, entries } = about.controls;
  if (event.repeat && [" ", "Enter", "Backspace"].includes(key)) return event.preventDefault();
  held.add(letter);
  let done = true;
  if (key === "Backspace") again();
  else if (key === "Enter" && !onButton) next();
  else if (key === " " && !onButton) toggle();
  else if (key === "." && about.player !== null) act("policy");
  else if (kind === "discrete" && actions.some(({ keys }) => keys.includes(letter))) {
    const action = actions.findIndex(({ keys }) => keys.includes(letter));
    chosen = tapped = action;
    if (!running) act(action);
  } else if (kind === "box" && entries.some(({ keys }) => keys.includes(letter))) {
    if (!running) act(byHand());
  } else done = false;
  if (done) event.preventDefault();
});
window.addEventListener("keyup", ({ key }) => held.delete(key.length === 1 ? key.toLowerCase() : key));
window.addEventListener("blur", () => held.clear());

$("level").ontoggle = () => showBoard(now.board);
$("again").onclick = again;
$("next").onclick = next;
$("run").onclick = toggle;
$("act").onclick = () => act("policy");
$("mutate").onclick = () => change("level", { mutate: true });
$("seed").onchange = () => change("reset", { seed: Number($("seed").value) });

(async () => {
  try {
    about = await ask("about");
    document.title = `${about.id} · jaxrl play`;
    $("id").textContent = about.id;
    $("about").textContent = about.words + (about.player ? ` Policy: ${about.player}.` : "");
    build();
    show(await ask("state"));
  } catch (error) {
    $("waiting").hidden = true;
    say(error.message, "bad");
  }
})();
