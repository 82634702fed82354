/* The form of one criterion. Its controls write into the store; notes are put beside what they are about. */
import { bars, field, h, icon, words } from "./rubric_dom.js";
import { paramFields } from "./rubric_params.js";

export class CriterionForm {
  constructor({ card, store, data, actions }) {
    Object.assign(this, { card, store, data, actions });
  }

  show(id) {
    const criterion = this.store.criterion(id);
    this.id = id;
    this.card.hidden = !criterion;
    if (!criterion) return;
    const kind = this.store.kindOf(criterion);
    this.title = h("h2", { dir: "auto" }, criterion.name || id);
    this.card.replaceChildren(
      this.head(criterion),
      h(
        "div",
        { class: "bd form crit-form" },
        h("div", { class: "notes wide", "data-note": "*" }),
        this.name(criterion),
        this.kind(criterion, kind),
        ...(kind ? paramFields(criterion, kind, { ...this.data, isJsonPath: kind.name === "json_path" }, this.setParam) : []),
        this.weight(criterion),
        ...this.counts(criterion, kind),
        this.applies(criterion),
      ),
    );
  }

  setParam = (name, value, isWhole = false) =>
    this.store.setParam(this.id, name, value, isWhole ? { structural: isWhole === "structural" } : undefined);

  set(name, value, fallback, options) {
    this.store.set(this.id, name, value, fallback, options);
  }

  head(criterion) {
    const button = (name, label, act) =>
      h("button", { type: "button", class: "icon-btn", "aria-label": label, title: label, onclick: act }, icon(name));
    return h(
      "div",
      { class: "hd" },
      this.title,
      h("span", { class: "mono faint small", title: "Its id: stays when the name changes" }, criterion.id),
      h(
        "div",
        { class: "end" },
        button("up", "Move up (Alt ↑)", () => this.actions.move(-1)),
        button("down", "Move down (Alt ↓)", () => this.actions.move(1)),
        button("copy", "Duplicate (D)", () => this.actions.duplicate()),
        button("cross", "Delete (Del)", () => this.actions.remove()),
      ),
    );
  }

  name(criterion) {
    const input = h("input", {
      type: "text",
      maxlength: 120,
      "data-name": true,
      autocomplete: "off",
      value: criterion.name ?? "",
      oninput: () => {
        this.set("name", input.value.trim() === "" ? undefined : input.value);
        this.title.textContent = input.value || this.id;
      },
      onchange: () => this.actions.named(),
    });
    return field("Name", input, { note: "name", kind: "wide" });
  }

  kind(criterion, kind) {
    const button = h("button", { type: "button", class: "btn kind-btn", onclick: () => this.actions.chooseKind() }, kind ? kind.label : criterion.kind || "choose");
    return h(
      "div",
      { class: "field wide" },
      h("span", { class: "label" }, "Decided by"),
      h("div", { class: "kind-line" }, button, h("span", { class: "muted small" }, kind ? kind.about : "")),
      h("div", { class: "notes", "data-note": "kind" }),
    );
  }

  weight(criterion) {
    const value = Number.isInteger(criterion.weight) ? criterion.weight : 1;
    const shown = h("output", { class: "num small" }, String(value));
    const input = h("input", { type: "range", min: 1, max: 10, step: 1, value, "aria-valuetext": `${value} of 10` });
    const box = h("div", { class: "weight-box" }, bars(value), input);
    input.addEventListener("input", () => {
      const weight = Number(input.value);
      this.set("weight", weight, 1);
      shown.textContent = String(weight);
      input.setAttribute("aria-valuetext", `${weight} of 10`);
      box.replaceChild(bars(weight), box.firstChild);
    });
    const id = (input.id = "weight-of-criterion");
    return h(
      "div",
      { class: "field" },
      h("label", { for: id }, "Weight"),
      h("div", { class: "weight-line" }, box, shown),
      h("div", { class: "notes", "data-note": "weight" }),
    );
  }

  counts(criterion, kind) {
    const threshold = h("input", {
      type: "text",
      inputmode: "decimal",
      placeholder: "0.5",
      value: criterion.threshold ?? "",
      oninput: () => this.set("threshold", numberOr(threshold.value), undefined),
    });
    const group = h(
      "select",
      {
        onchange: () => (group.value === "+" ? this.actions.newGroup() : this.set("group", group.value, "", { structural: true })),
      },
      h("option", { value: "" }, "none"),
      this.store.groups.map((item) => h("option", { value: item.id }, item.name || item.id)),
      h("option", { value: "+" }, "New group…"),
    );
    group.value = criterion.group ?? "";
    const scopes = kind?.scopes ?? this.data.scopes;
    const scope = h(
      "select",
      { onchange: () => this.set("scope", scope.value, "final_answer", { structural: true }) },
      scopes.map((name) => h("option", { value: name }, words(name))),
    );
    scope.value = criterion.scope ?? "final_answer";
    return [
      scopes.length > 1 || !scopes.includes(criterion.scope ?? "final_answer") ? field("Looks at", scope, { note: "scope" }) : h("div", { class: "notes", "data-note": "scope" }),
      field("Passed at", threshold, { note: "threshold", help: criterion.negative ? "a penalty is passed below it" : "" }),
      field("Group", group, { note: "group" }),
      h(
        "fieldset",
        { class: "field wide flags" },
        h("legend", {}, "What it does"),
        this.flag(criterion, "required", "Required", "failing it makes the score 0"),
        this.flag(criterion, "negative", "Penalty", "1 means that the bad thing happened", kind?.negative !== null && kind?.negative !== undefined),
        this.flag(criterion, "gate", "Gate", "if it is not passed, those after it are not graded"),
        h("div", { class: "notes", "data-note": "required" }),
        h("div", { class: "notes", "data-note": "negative" }),
        h("div", { class: "notes", "data-note": "gate" }),
      ),
    ];
  }

  flag(criterion, name, label, about, isFixed = false) {
    const box = h("input", {
      type: "checkbox",
      checked: Boolean(criterion[name]),
      disabled: isFixed,
      onchange: () => this.set(name, box.checked, false, { structural: true }),
    });
    return h("label", {}, box, label, h("span", { class: "muted small" }, isFixed ? `${about}; always so for this kind` : about));
  }

  applies(criterion) {
    const now = criterion.applies ?? {};
    const write = (change) => {
      const next = { ...this.store.criterion(this.id).applies, ...change };
      for (const [key, value] of Object.entries(next)) if (value === undefined) delete next[key];
      this.set("applies", Object.keys(next).length ? next : undefined);
    };
    const labels = h("textarea", {
      rows: 2,
      class: "grow mono",
      spellcheck: "false",
      placeholder: "family: count_lines, first_line",
      value: Object.entries(now.labels ?? {})
        .map(([name, values]) => `${name}: ${[values].flat().join(", ")}`)
        .join("\n"),
      oninput: () => write({ labels: labelsOf(labels.value) }),
    });
    const answered = h(
      "select",
      { onchange: () => write({ answered: { yes: true, no: false }[answered.value] }) },
      h("option", { value: "" }, "with or without an answer"),
      h("option", { value: "yes" }, "only with an answer"),
      h("option", { value: "no" }, "only without an answer"),
    );
    answered.value = now.answered === true ? "yes" : now.answered === false ? "no" : "";
    const steps = h("input", {
      type: "text",
      inputmode: "numeric",
      placeholder: "0",
      value: now.min_steps ?? "",
      oninput: () => write({ min_steps: numberOr(steps.value) }),
    });
    return h(
      "details",
      { class: "fold wide", open: Object.keys(now).length > 0 },
      h("summary", { class: "small" }, "When it applies"),
      h(
        "div",
        { class: "form crit-form pad" },
        field("Rollouts", answered),
        field("Least number of steps", steps),
        field("Labels of the task", labels, { kind: "wide", help: "one label in each line, accepted values after the colon" }),
        h("div", { class: "notes wide", "data-note": "applies" }),
      ),
    );
  }

  /* Puts each note beside its field; what has no field here stands on top. */
  notes(list) {
    const places = new Map([...this.card.querySelectorAll("[data-note]")].map((place) => [place.dataset.note, place]));
    for (const place of places.values()) place.replaceChildren();
    for (const note of list) (places.get(note.field) ?? places.get("*"))?.append(noteLine(note));
    for (const control of this.card.querySelectorAll("input, textarea, select")) {
      const place = control.closest(".field")?.querySelector("[data-note]");
      control.toggleAttribute("aria-invalid", false);
      if (place?.querySelector(".is-problem")) control.setAttribute("aria-invalid", "true");
    }
  }
}

export function noteLine(note) {
  const isTodo = note.level === "problem" && note.text.startsWith("required");
  return h(
    "p",
    { class: isTodo ? "note-line is-todo" : `note-line is-${note.level}` },
    icon(note.level === "problem" && !isTodo ? "alert" : note.level === "warning" ? "alert" : "edit", "s"),
    h("span", { dir: "auto" }, isTodo ? "still needed" : note.text, note.fix ? h("span", { class: "muted" }, ` ${note.fix}`) : ""),
  );
}

export function numberOr(text) {
  const typed = text.trim();
  const amount = Number(typed);
  return typed === "" ? undefined : Number.isFinite(amount) ? amount : typed;
}

function labelsOf(text) {
  const rows = text.split("\n").filter((line) => line.trim());
  const entries = rows.map((line) => {
    const [name, ...rest] = line.split(":");
    return [name.trim(), rest.join(":").split(",").map((value) => value.trim()).filter(Boolean)];
  });
  return entries.length ? Object.fromEntries(entries) : undefined;
}
