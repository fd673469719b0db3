// The flame graph of one profile: boxes are drawn for what is zoomed to, and again on each change.
"use strict";
(() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const ROW = 18, LETTER = 6.7, NARROWEST = 0.4;
  const svg = document.getElementById("flame");
  const detail = document.getElementById("detail");
  const found = document.getElementById("found");
  const search = document.getElementById("search");
  const { names, root } = JSON.parse(document.getElementById("stacks").textContent);

  const nodes = [];
  const unpack = ([name, library, time, children], depth, start, parent) => {
    const node = { name: names[name], library: names[library], time, depth, start, parent };
    nodes.push(node);
    let at = start;
    for (const child of children) {
      unpack(child, depth + 1, at, node);
      at += child[2];
    }
    return node;
  };
  const top = unpack(root, 0, 0, null);
  const rows = Math.max(...nodes.map((node) => node.depth)) + 1;
  let zoomed = top;

  // A library keeps its colour wherever it appears.
  const colour = (library) => {
    if (!library) return "#c9ced6";
    let sum = 7;
    for (const letter of library) sum = (sum * 31 + letter.codePointAt(0)) % 360;
    return `hsl(${sum}, 62%, 74%)`;
  };
  const seconds = (time) => `${(time / 1e6).toFixed(3)} s, ${(100 * time / top.time).toFixed(2)} %`;
  const about = (node) =>
    `${node.name}${node.library ? ` (${node.library})` : ""}: ${seconds(node.time)}`;
  const element = (name, attributes, text) => {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const inside = (node) => {
    for (let at = zoomed; at; at = at.parent) if (at === node) return true;
    return node.start >= zoomed.start && node.start + node.time <= zoomed.start + zoomed.time
      && node.depth > zoomed.depth;
  };

  const draw = () => {
    const width = svg.clientWidth || 1100;
    const scale = width / zoomed.time;
    const wanted = search.value.trim().toLowerCase();
    const boxes = document.createDocumentFragment();
    const hits = [];
    svg.setAttribute("height", rows * ROW);
    for (const node of nodes) {
      const hit = wanted !== "" && (node.name.toLowerCase().includes(wanted)
        || node.library.toLowerCase().includes(wanted));
      if (hit) hits.push(node);
      if (!inside(node)) continue;
      const x = Math.max((node.start - zoomed.start) * scale, 0);
      const w = Math.min(node.time * scale, width);
      if (w < NARROWEST) continue;
      const y = node.depth * ROW;
      const box = element("g", hit ? { class: "hit" } : {});
      box.append(element("rect", { x, y, width: w, height: ROW - 1, fill: colour(node.library) }));
      const letters = Math.floor((w - 6) / LETTER);
      if (letters > 2) {
        const text = node.name.length > letters ? `${node.name.slice(0, letters - 1)}…` : node.name;
        box.append(element("text", { x: x + 3, y: y + 13 }, text));
      }
      box.append(element("title", {}, about(node)));
      box.addEventListener("click", () => { zoomed = node; draw(); });
      box.addEventListener("mouseover", () => { detail.textContent = about(node); });
      boxes.append(box);
    }
    svg.replaceChildren(boxes);
    found.textContent = wanted === "" ? "" : `${seconds(once(hits))} in ${hits.length} places`;
  };

  // A hit under another hit is part of it.
  const once = (hits) => {
    const all = new Set(hits);
    let time = 0;
    for (const node of hits) {
      let above = node.parent;
      while (above && !all.has(above)) above = above.parent;
      if (!above) time += node.time;
    }
    return time;
  };

  search.addEventListener("input", draw);
  document.getElementById("reset").addEventListener("click", () => {
    zoomed = top;
    search.value = "";
    draw();
  });
  window.addEventListener("resize", draw);
  // So that a link, and a test, can show a search or a box.
  const asked = new URLSearchParams(location.hash.slice(1));
  search.value = asked.get("search") ?? "";
  if (asked.has("zoom")) zoomed = nodes.find((node) => node.name === asked.get("zoom")) ?? top;
  draw();
})();
