/* Two have written the same draft: the second sees what differs, piece by piece, and decides. What only one of them
   touched is chosen beforehand; what both touched must be decided. */
import { clock } from "./rubric_saving.js";
import { h, words } from "./rubric_dom.js";

const SCORE = ["aggregation", "pass_threshold", "min_coverage"];

/* What is to be decided. `base`: what both started from. */
export function pieces(base, mine, theirs, changes) {
  return changes
    .filter((change) => change.what !== "moved")
    .map((change) => {
      const [at, here, there] = [base, mine, theirs].map((spec) => JSON.stringify(part(spec, change)) ?? "");
      const touched = here === at ? "they" : there === at ? "you" : "both";
      return { ...change, touched, choice: { they: "theirs", you: "mine", both: "" }[touched] };
    });
}

function part(spec, { part: name, id }) {
  if (name === "rubric") return Object.fromEntries(SCORE.map((key) => [key, spec[key]]));
  return (spec[name] ?? []).find((item) => item.id === id);
}

/* The rubric that the choices make. */
export function merged(base, mine, theirs, decided) {
  const chosen = (name, id) => decided.find((piece) => piece.part === name && piece.id === id)?.choice ?? "mine";
  const result = structuredClone(theirs);
  if (chosen("rubric", "") === "mine") {
    for (const key of SCORE) {
      if (mine[key] === undefined) delete result[key];
      else result[key] = mine[key];
    }
  }
  for (const name of ["criteria", "groups"]) {
    const lists = [base, mine, theirs].map((spec) => spec[name] ?? []);
    const order = joined(...lists.map((list) => list.map((item) => item.id)));
    const from = (id) => (chosen(name, id) === "theirs" ? lists[2] : lists[1]).find((item) => item.id === id);
    const items = order.map(from).filter(Boolean);
    if (items.length || result[name]) result[name] = structuredClone(items);
  }
  return result;
}

/* My order where I have changed it, else theirs; what only the other has follows its neighbour. */
function joined(base, mine, theirs) {
  const common = mine.filter((id) => base.includes(id));
  const moved = common.join("\n") !== base.filter((id) => mine.includes(id)).join("\n");
  const [first, second] = moved ? [mine, theirs] : [theirs, mine];
  const order = [...first];
  second.forEach((id, i) => {
    if (!order.includes(id)) order.splice(i === 0 ? 0 : order.indexOf(second[i - 1]) + 1, 0, id);
  });
  return order;
}

export function askMerge(dialog, stale, store, done) {
  const list = pieces(store.stored, store.spec, stale.spec, stale.changes);
  const finish = dialog.querySelector("[data-merge-done]");
  const check = () => {
    const n = list.filter((piece) => !piece.choice).length;
    finish.disabled = n > 0;
    finish.textContent = n ? `${n} to decide` : "Store this";
  };
  dialog.querySelector("[data-merge-about]").textContent =
    `${stale.by || "Somebody else"} stored this draft at ${clock(stale.at)}, after you had opened it. Nothing of yours is stored or lost yet.`;
  const show = () =>
    dialog.querySelector("[data-merge-list]").replaceChildren(...list.map((piece) => row(piece, check)));
  for (const button of dialog.querySelectorAll("[data-merge-all]")) {
    button.onclick = () => {
      for (const piece of list) piece.choice = button.dataset.mergeAll;
      show();
      check();
    };
  }
  finish.onclick = () => {
    const spec = merged(store.stored, store.spec, stale.spec, list);
    dialog.close();
    done(spec);
  };
  show();
  check();
  dialog.showModal();
}

const TOUCHED = { they: "only they changed it", you: "only you changed it", both: "both of you changed it" };

function row(piece, check) {
  const name = `merge-${piece.part}-${piece.id}`;
  const radio = (value, text) =>
    h(
      "label",
      {},
      h("input", {
        type: "radio",
        name,
        value,
        checked: piece.choice === value,
        onchange: () => {
          piece.choice = value;
          check();
        },
      }),
      text,
    );
  return h(
    "fieldset",
    { class: "merge-piece" },
    h("legend", {}, h("span", { class: "strong" }, piece.label || piece.id), " ", h("span", { class: "pill" }, TOUCHED[piece.touched])),
    piece.fields.map((field) =>
      h(
        "div",
        { class: "versus" },
        h("h3", {}, words(field.name)),
        h(
          "div",
          { class: "two even" },
          h("div", {}, h("p", { class: "small muted" }, "stored by now"), h("pre", { class: "block", dir: "auto" }, field.before || "–")),
          h("div", {}, h("p", { class: "small muted" }, "yours"), h("pre", { class: "block", dir: "auto" }, field.after || "–")),
        ),
      ),
    ),
    h("div", { class: "radios line" }, radio("theirs", takes(piece, "theirs")), radio("mine", takes(piece, "mine"))),
  );
}

/* From what is stored to mine: `added` is there only in mine, `removed` only in theirs. */
function takes(piece, side) {
  if (side === "theirs") return piece.what === "added" ? "Take theirs: without it" : "Take theirs";
  return piece.what === "removed" ? "Keep mine: without it" : "Keep mine";
}
