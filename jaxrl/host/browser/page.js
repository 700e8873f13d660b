"use strict";
// What both pages use.

const $ = (id) => document.getElementById(id);

function element(tag, settings = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, settings);
  made.append(...children);
  return made;
}

// JSON of a path beside the page; an error is what the server says of it.
async function ask(path, sent) {
  let answer;
  try {
    const how = sent === undefined ? {} : { method: "POST", body: JSON.stringify(sent) };
    answer = await fetch(path, how);
  } catch {
    throw new Error("The program that serves this page has ended.");
  }
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  return said;
}

function number(x, digits = 4) {
  if (x === null || x === undefined) return "–";
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x)) return x.toLocaleString("en");
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(digits)));
}

const numbers = (x) => (Array.isArray(x) ? x.map((v) => number(v, 3)).join(", ") : number(x));
