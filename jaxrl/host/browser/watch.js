"use strict";
// Curves and films of a run, asked for once a second while it trains.

const EVERY = 1000; // ms
const WIDTH = 560, HEIGHT = 210, LEFT = 52, BOTTOM = 22, TOP = 8, RIGHT = 18;
let known = null; // the state that was drawn
let shown = ""; // the film

const words = { waiting: "", training: "", silent: "bad", wrong: "bad", interrupted: "bad", finished: "good" };

function spoken(seconds) {
  if (seconds === null) return "–";
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return seconds >= 60 ? `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s` : `${Math.round(seconds)} s`;
}

async function look() {
  let state;
  try {
    state = await ask("state");
  } catch (error) {
    $("words").textContent = error.message;
    $("words").className = "words bad";
    return setTimeout(look, 3 * EVERY);
  }
  try {
    await show(state);
  } catch (error) {
    $("words").textContent = error.message;
  }
  setTimeout(look, EVERY);
}

async function show(state) {
  $("words").textContent = state.words;
  $("words").className = `words ${words[state.phase] ?? ""}`;
  $("folder").textContent = state.folder;
  const there = state.step !== undefined;
  $("progress").hidden = $("curves").hidden = $("films").hidden = !there;
  if (!there) return;
  const seeds = state.seeds === 1 ? "one seed" : `${number(state.seeds)} seeds`;
  $("title").textContent = `${state.algorithm} on ${state.env}`;
  document.title = `${Math.floor((100 * state.step) / state.total)} % · ${state.algorithm} on ${state.env}`;
  $("folder").textContent = `${state.folder}, ${seeds}`;
  $("bar").value = state.step / state.total;
  $("unit").textContent = `${state.unit}, of ${number(state.total)}`;
  $("step").textContent = number(state.step);
  $("rate").textContent = state.rate === null ? "–" : number(Math.round(state.rate));
  $("left").textContent = spoken(state.left);
  $("training").textContent = number(state.latest.episode_return);
  $("evaluated").textContent = number(state.latest.return);
  showFilms(state);
  await showCurves(state);
  known = state;
}

// ---- curves

async function showCurves(state) {
  const names = state.metrics.filter((name) => name !== "episode_return");
  const select = $("metric");
  if (select.options.length !== names.length) {
    const before = select.value || (names.includes("loss") ? "loss" : names[0]);
    select.replaceChildren(...names.map((name) => new Option(name.replaceAll("_", " "), name)));
    if (names.includes(before)) select.value = before;
  }
  $("card-metric").hidden = !names.length;
  $("card-evaluation").hidden = !state.judged.length;
  const same = known && known.rows === state.rows && known.evaluations === state.evaluations;
  if (same && known.metric === select.value) {
    state.metric = known.metric;
    return;
  }
  state.metric = select.value;
  await draw("card-return", "curve?metric=episode_return", state);
  if (state.judged.length) await draw("card-evaluation", `curve?of=evaluations&metric=${state.judged.at(-1)}`, state);
  if (names.length) await draw("card-metric", `curve?metric=${encodeURIComponent(select.value)}`, state);
  $("legend").textContent = state.seeds === 1 ? "" : "Bold: the mean over seeds. Faint: single seeds, or from the least to the greatest of many.";
}

function svg(name, settings) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(settings)) made.setAttribute(key, value);
  return made;
}

// Round numbers from low to high.
function ticks(low, high, count) {
  const rough = (high - low) / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * size).find((s) => s >= rough);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function short(x) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(x) >= size && Math.abs(x) >= 1e4) return `${Number((x / size).toPrecision(4))}${letter}`;
  return Math.abs(x) > 0 && Math.abs(x) < 1e-3 ? x.toExponential(1) : String(Number(x.toPrecision(4)));
}

async function draw(id, path, state) {
  const { steps, mean, seeds, least, greatest } = await ask(path);
  const chart = document.querySelector(`#${id} .chart`), read = document.querySelector(`#${id} output`);
  const values = [mean, ...seeds, least ?? [], greatest ?? []].flat().filter((x) => x !== null);
  if (!values.length) {
    const none = id === "card-return" && steps.length ? "No episode has ended yet." : "Nothing was logged yet.";
    chart.replaceChildren(element("p", { className: "soft", textContent: none }));
    read.textContent = "";
    return;
  }
  let low = Math.min(...values), high = Math.max(...values);
  const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  low -= room;
  high += room;
  const end = Math.max(state.phase === "training" ? Math.min(state.total, 1.15 * steps.at(-1)) : steps.at(-1), 1);
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * step) / end;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  const title = document.querySelector(`#${id} h2`).textContent.trim();
  const last = mean.findLast((v) => v !== null);
  const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, last ${number(last)}` });
  for (const tick of ticks(low, high, 4)) {
    drawn.append(svg("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }));
    const label = svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" });
    label.textContent = short(tick);
    drawn.append(label);
  }
  for (const tick of ticks(0, end, 5)) {
    const label = svg("text", { x: x(tick), y: HEIGHT - 5, "text-anchor": "middle" });
    label.textContent = short(tick);
    drawn.append(label);
  }
  const path_ = (line) => {
    let d = "", pen = "M";
    line.forEach((v, i) => {
      if (v === null) return;
      d += `${pen}${x(steps[i]).toFixed(1)} ${y(v).toFixed(1)}`;
      pen = "L";
    });
    return d;
  };
  if (least) {
    const some = steps.map((_, i) => i).filter((i) => least[i] !== null);
    const points = [...some.map((i) => [i, greatest[i]]), ...some.reverse().map((i) => [i, least[i]])];
    drawn.append(svg("polygon", { class: "band", points: points.map(([i, v]) => `${x(steps[i])},${y(v)}`).join(" ") }));
  }
  for (const line of seeds) drawn.append(svg("path", { class: "seed", d: path_(line) }));
  drawn.append(svg("path", { class: "mean", d: path_(mean) }));
  if (mean.filter((v) => v !== null).length < 40)
    mean.forEach((v, i) => v !== null && drawn.append(svg("circle", { class: "dot", cx: x(steps[i]), cy: y(v), r: 2.5 })));
  const rule = svg("line", { class: "read", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  drawn.append(rule);
  const tell = (i) => `${number(mean[i])} at ${short(steps[i])}`;
  read.textContent = tell(mean.findLastIndex((v) => v !== null));
  drawn.onpointermove = (event) => {
    const at = ((event.clientX - drawn.getBoundingClientRect().left) / drawn.clientWidth) * WIDTH;
    let near = 0;
    steps.forEach((s, i) => mean[i] !== null && Math.abs(x(s) - at) < Math.abs(x(steps[near]) - at) && (near = i));
    rule.setAttribute("x1", x(steps[near]));
    rule.setAttribute("x2", x(steps[near]));
    rule.setAttribute("visibility", "visible");
    read.textContent = tell(near);
  };
  drawn.onpointerleave = () => {
    rule.setAttribute("visibility", "hidden");
    read.textContent = tell(mean.findLastIndex((v) => v !== null));
  };
  chart.replaceChildren(drawn);
}

// ---- films

function showFilms(state) {
  const { made, films } = state;
  const kept = $("kept"), names = films.map(({ name }) => name);
  const key = films.map(({ name, changed }) => `${name} ${changed}`).join(); // one that is written now changes again
  if (kept.dataset.key !== key) {
    kept.dataset.key = key;
    kept.replaceChildren(...names.map((name) => new Option(name)));
    kept.onchange();
  }
  kept.hidden = films.length < 2;
  $("which").hidden = state.seeds === 1;
  if ($("seed").options.length !== Math.min(state.seeds, 100))
    $("seed").replaceChildren(...Array.from({ length: Math.min(state.seeds, 100) }, (_, i) => new Option(i)));
  $("make").disabled = made.state === "making" || !state.checkpoints.length;
  if (made.state === "making") $("note").textContent = "The policy plays an episode, which is drawn: some seconds.";
  else if (made.state === "failed") $("note").textContent = made.words;
  else if (!state.checkpoints.length) $("note").textContent = "No checkpoint yet, of which an episode could be filmed.";
  else if (!shown) $("note").textContent = "No film yet. `jaxrl train --video-every N` writes films while it trains.";
  else $("note").textContent = "";
  if (made.state === "ready" && made.count !== known?.made.count) {
    const when = made.update === null ? "" : `, update ${number(made.update)}`;
    project(`made.gif?v=${made.count}`, `seed ${made.seed}${when}`);
  }
}

function project(path, caption) {
  shown = path;
  $("caption").textContent = caption;
  const film = /\.mp4/.test(path)
    ? element("video", { src: path, loop: true, autoplay: true, muted: true, controls: true })
    : element("img", { src: path, alt: `An episode: ${caption}` });
  $("film").replaceChildren(film);
}

$("kept").onchange = () => {
  const name = $("kept").value;
  if (name) project(`film?name=${encodeURIComponent(name)}&v=${Date.now()}`, name);
};
$("make").onclick = async () => {
  $("make").disabled = true;
  try {
    await ask("film", { seed: Number($("seed").value || 0) });
  } catch (error) {
    $("note").textContent = error.message;
  }
};
$("metric").onchange = () => known && showCurves(known).catch((error) => ($("words").textContent = error.message));
look();
