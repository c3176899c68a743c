"use strict";
// The page keeps everything in these variables: closing or loading it again forgets all.
const byId = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const address = (path) => `${path}?token=${encodeURIComponent(token)}`;
let about = null;
let last = null; // the picture that was asked about last, for "Try again"
let asking = false;
let wordsUntil = 0;

const megabytes = (n) => (n >= 1e5 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e3).toFixed(1)} kB`);
const whole = (n) => Math.round(n).toLocaleString("en");
const seconds = (s) => (s < 90 ? `${s.toFixed(s < 10 ? 1 : 0)} s` : `${(s / 60).toFixed(1)} min`);
const percent = (p) => `${(100 * p).toFixed(p > 0.9995 || p < 0.1 ? 2 : 1)} %`;

function element(name, text, properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  if (text !== null) made.textContent = text;
  return made;
}

function row(table, head, ...cells) {
  const made = element("tr", null);
  made.append(element("th", head, { scope: "row" }), ...cells);
  table.tBodies[0].append(made);
}

async function start() {
  about = await (await fetch(address("/about"))).json();
  byId("server").textContent = about.server;
  const facts = [
    ["Protocol", about.protocol + (about.private ? "" : " (not private)")],
    ["Trusts", about.trust],
    ["Connection", about.certified ? "TLS, both sides show certificates" : "this machine only, without TLS"],
    ["Model", `${about.classes.length} classes` + (about.data ? `, made for ${about.data}` : "") + `, reads ${about.size} × ${about.size} pixels`],
  ];
  if (about.helper) facts.splice(1, 0, ["Third party", about.helper]);
  for (const [name, value] of facts) byId("facts").append(element("dt", name), element("dd", value));
  byId("command").textContent = `curl --data-binary @picture.png '${location.origin}${address("/predict")}'`;
  about.examples.forEach((name, number) => {
    const button = element("button", null, { type: "button", title: name });
    button.append(element("img", null, { src: address(`/examples/${number}`), alt: `Example ${name}` }));
    button.addEventListener("click", async () => {
      if (!asking) ask(await (await fetch(address(`/examples/${number}`))).blob(), name);
    });
    byId("examples").append(button);
  });
}

function draw(seen) {
  const bytes = Uint8Array.from(atob(seen.sample), (letter) => letter.charCodeAt(0));
  if (bytes.length < 3) return;
  const canvas = byId("seen");
  const image = canvas.getContext("2d").createImageData(64, 64);
  for (let point = 0; 3 * point + 2 < bytes.length; point++) {
    image.data.set(bytes.subarray(3 * point, 3 * point + 3), 4 * point);
    image.data[4 * point + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.hidden = false;
  byId("seen-empty").hidden = true;
  const words = `${megabytes(seen.sent_bytes)} in ${whole(seen.pieces)} pieces`;
  canvas.setAttribute("aria-label", `Noise: bytes of the ${words} that were sent to the server`);
  byId("seen-caption").textContent = `${words} were sent to it. Drawn: 192 bytes from each of 64 places among them, three to a point.`;
}

function progress(event) {
  const bar = byId("bar");
  if (event.share === null || event.work === "setup") bar.removeAttribute("value");
  else bar.value = event.share;
  const of = (n, expected, show) => (expected === null ? show(n) : `${show(n)} of about ${show(expected)}`);
  let words = `${of(event.sent_bytes, event.expected_bytes, megabytes)} · ${of(event.rounds, event.expected_rounds, whole)} rounds`;
  if (event.seconds_left !== null) words += ` · ${seconds(event.seconds_left)} left`;
  byId("counts").textContent = words;
  if (event.work === "query") draw(event.seen);
}

function guard(inside) {
  const word = byId("guard");
  word.hidden = inside === null || inside === undefined;
  word.className = inside === false ? "guard outside" : "guard";
  word.textContent = inside
    ? "The picture stayed inside what the model was made for."
    : "The picture is outside what the model was made for: do not rely on this answer.";
}

function answer(event) {
  draw(event.seen);
  byId("class-name").textContent = event.class_name;
  guard(event.inside);
  const chances = byId("chances");
  chances.tBodies[0].replaceChildren();
  const best = Object.entries(event.probabilities).sort((a, b) => b[1] - a[1]).slice(0, 5);
  for (const [name, p] of best) {
    const cell = element("td", null, { ariaHidden: "true" });
    const bar = element("span", null, { className: "chance" });
    bar.append(element("span", null));
    bar.firstChild.style.width = `${100 * p}%`;
    cell.append(bar);
    row(chances, name, cell, element("td", percent(p)));
  }
  const cost = byId("cost");
  cost.tBodies[0].replaceChildren();
  const beside = (n, show) => element("td", n === null ? "" : show(n));
  row(cost, "sent", beside(event.sent_bytes, megabytes), beside(about.expected_bytes, megabytes));
  row(cost, "rounds", beside(event.rounds, whole), beside(about.expected_rounds, whole));
  row(cost, "time", beside(event.seconds, seconds), beside(about.expected_seconds, seconds));
  byId("setup").textContent = event.setup_bytes ? `Opening the session took ${megabytes(event.setup_bytes)} more, once.` : "";
  byId("answer").hidden = false;
  byId("class-name").focus({ preventScroll: true });
}

function remember(event, name) {
  const item = element("li", null);
  const picture = element("img", null, { src: byId("picture").src, alt: "" });
  const best = event.probabilities[event.class_name];
  item.append(picture, element("span", `${name}: ${event.class_name}, ${percent(best)}`));
  item.append(element("span", `${megabytes(event.sent_bytes)}, ${seconds(event.seconds)}`, { className: "caption" }));
  byId("past-list").prepend(item);
  byId("past").hidden = false;
}

function trouble(error, hint) {
  byId("error").textContent = `${error[0].toUpperCase()}${error.slice(1)}.`;
  byId("hint").textContent = hint ? `${hint[0].toUpperCase()}${hint.slice(1)}.` : "";
  byId("again").hidden = last === null;
  byId("trouble").hidden = false;
  byId("says").textContent = "No answer.";
}

const handlers = {
  picture(event, name) {
    byId("picture").src = event.png;
    byId("picture").alt = `Your picture, ${name}`;
    byId("picture").hidden = false;
    byId("picture-empty").hidden = true;
    byId("drop").classList.add("full");
    byId("picture-caption").textContent = `${name}, as the model reads it: ${about.size} × ${about.size} pixels. It stays on this machine, and is not written to disk.`;
  },
  says(event) {
    if (Date.now() < wordsUntil || byId("says").textContent === event.text) return;
    byId("says").textContent = event.text;
  },
  progress,
  answer(event, name) { answer(event); remember(event, name); byId("says").textContent = "Answered."; },
  error(event) { trouble(event.error, event.hint); },
};

async function events(response, name) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", ended = false;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const event = JSON.parse(line);
      ended ||= event.event === "answer" || event.event === "error";
      handlers[event.event](event, name);
    }
  }
  if (!ended) trouble("privit page ended before the answer came", "start it again, and open the address that it prints");
}

async function ask(file, name) {
  if (asking) {
    byId("says").textContent = "One picture at a time: the last one is still being asked about.";
    // Long enough to be read, whatever the session has to say meanwhile.
    wordsUntil = Date.now() + 4000;
    return;
  }
  last = null;
  for (const id of ["trouble", "answer"]) byId(id).hidden = true;
  byId("counts").textContent = "";
  if (about && file.size > about.upload_bytes) {
    trouble(`${name} is larger than ${about.upload_bytes >> 20} MB, which is the most that is taken`, "make the picture smaller first");
    return;
  }
  asking = true;
  last = [file, name];
  document.body.classList.add("busy");
  byId("bar").hidden = false;
  byId("bar").removeAttribute("value");
  byId("seen").hidden = true;
  byId("seen-empty").hidden = false;
  byId("seen-caption").textContent = "The bytes that really cross to the server are drawn here.";
  try {
    const response = await fetch(address("/predict"), { method: "POST", body: file, headers: { Accept: "application/x-ndjson" } });
    if (response.headers.get("Content-Type").startsWith("application/x-ndjson")) await events(response, name);
    else if (response.headers.get("Content-Type").startsWith("application/json")) handlers.error(await response.json());
    else trouble((await response.text()).trim(), "");
  } catch {
    trouble("privit page does not answer", "look at its terminal: start it again, and open the address that it prints");
  } finally {
    asking = false;
    document.body.classList.remove("busy");
    byId("bar").hidden = true;
    byId("counts").textContent = "";
  }
}

const first = (list) => { if (list && list.length) ask(list[0], list[0].name || "pasted picture"); };
byId("file").addEventListener("change", (event) => { first(event.target.files); event.target.value = ""; });
byId("again").addEventListener("click", () => { if (last) ask(...last); });
document.addEventListener("paste", (event) => first(event.clipboardData.files));
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => { event.preventDefault(); byId("drop").classList.add("over"); });
}
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("drop").classList.remove("over"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  byId("drop").classList.remove("over");
  if (event.dataTransfer.files.length) first(event.dataTransfer.files);
  else trouble("what was dropped is not a file", "drop an image file from this machine");
});
start().catch(() => trouble("privit page does not answer", "look at its terminal: start it again, and open the address that it prints"));
