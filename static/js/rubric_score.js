/* How the score is made: aggregation, thresholds, groups. And what stands between the draft and a version. */
import { field, h, icon, words } from "./rubric_dom.js";
import { noteLine, numberOr } from "./rubric_form.js";

export function showScore(box, store, data) {
  const { spec } = store;
  const set = (name, value, fallback, structural = false) =>
    store.change(
      `change of ${words(name)}`,
      () => {
        if (value === undefined || value === fallback) delete spec[name];
        else spec[name] = value;
      },
      structural ? { structural } : { run: name },
    );
  const how = select(data.aggregations, spec.aggregation ?? "weighted_mean", (value) => set("aggregation", value, "weighted_mean", true));
  const number = (name, placeholder) => {
    const input = h("input", {
      type: "text",
      inputmode: "decimal",
      placeholder,
      value: spec[name] ?? "",
      oninput: () => set(name, numberOr(input.value), undefined),
    });
    return input;
  };
  box.replaceChildren(
    field("Verdicts become one score by", how),
    h(
      "div",
      { class: "form crit-form" },
      field("Passed at", number("pass_threshold", "1"), { help: "a rollout counts as passed" }),
      field("Least share decided", number("min_coverage", "0.5"), { help: "of the weight; below, the score is errored" }),
    ),
    h("h3", {}, "Groups"),
    store.groups.length ? "" : h("p", { class: "muted small" }, "None. A group of criteria counts as one, by its own rule."),
    ...store.groups.map((group) => groupRow(group, store, data)),
    h("div", {}, h("button", { type: "button", class: "btn", "data-new-group": true, onclick: () => newGroup(store) }, icon("plus"), "Add group")),
  );
}

export function newGroup(store, criterion = "") {
  const taken = new Set(store.groups.map((group) => group.id));
  let number = 1;
  while (taken.has(`group_${number}`)) number += 1;
  const id = `group_${number}`;
  store.change(
    "adding of a group",
    (spec) => {
      spec.groups = [...store.groups, { id, name: `Group ${number}` }];
      if (criterion) store.criterion(criterion).group = id;
    },
    { structural: true },
  );
  return id;
}

function groupRow(group, store, data) {
  const set = (name, value, fallback, structural = false) =>
    store.change(
      "change of a group",
      () => {
        const item = store.groups.find((other) => other.id === group.id);
        if (value === undefined || value === fallback) delete item[name];
        else item[name] = value;
      },
      structural ? { structural } : { run: `${group.id}.${name}` },
    );
  const name = h("input", { type: "text", maxlength: 120, value: group.name ?? "", oninput: () => set("name", name.value, "") });
  name.addEventListener("change", () => store.tell(true));
  const weight = h("input", { type: "text", inputmode: "numeric", value: group.weight ?? "", placeholder: "1", oninput: () => set("weight", numberOr(weight.value), undefined) });
  const threshold = h("input", { type: "text", inputmode: "decimal", value: group.threshold ?? "", placeholder: "0.5", oninput: () => set("threshold", numberOr(threshold.value), undefined) });
  const remove = () =>
    store.change(
      `delete of ${group.name || group.id}`,
      (spec) => {
        spec.groups = store.groups.filter((item) => item.id !== group.id);
        if (!spec.groups.length) delete spec.groups;
        for (const criterion of spec.criteria) if (criterion.group === group.id) delete criterion.group;
      },
      { structural: true },
    );
  return h(
    "div",
    { class: "group-row form crit-form", "data-group": group.id },
    field("Name of the group", name, { kind: "wide" }),
    field("By", select(data.aggregations, group.aggregation ?? "weighted_mean", (value) => set("aggregation", value, "weighted_mean", true))),
    field("Weight", weight),
    field("Passed at", threshold),
    h("div", {}, h("button", { type: "button", class: "btn quiet", onclick: remove }, icon("cross"), "Remove ", h("span", { class: "visually-hidden" }, group.name || group.id))),
  );
}

function select(values, value, onchange) {
  const element = h("select", { onchange: () => onchange(element.value) }, values.map((name) => h("option", { value: name }, words(name))));
  element.value = value;
  return element;
}

/* Problems first, then advice; a click goes to the field. */
export function showNotes(box, count, notes, store, go) {
  const problems = notes.filter((note) => note.level === "problem");
  count.textContent = problems.length ? `${problems.length} to do` : notes.length ? `${notes.length} hint${notes.length > 1 ? "s" : ""}` : "";
  if (!notes.length) {
    box.replaceChildren(h("p", { class: "muted small" }, "Nothing is missing, and nothing to advise."));
    return;
  }
  box.replaceChildren(
    h(
      "ul",
      { class: "note-list" },
      notes.map((note) => {
        const criterion = store.criterion(note.criterion);
        const where = criterion ? criterion.name || criterion.id : note.group ? `group ${note.group}` : "The rubric";
        const label = note.field && criterion ? `${where}, ${words(note.field)}` : where;
        return h(
          "li",
          {},
          criterion
            ? h("button", { type: "button", class: "linkish", dir: "auto", onclick: () => go(note) }, label)
            : h("span", { class: "strong small" }, note.field && note.field !== "criteria" ? `${where}: ${words(note.field)}` : where),
          noteLine(note),
        );
      }),
    ),
  );
}
