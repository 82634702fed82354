/* The page on which a rubric is written: cards, the form of the chosen one, keys, and storing by itself.
   Others may follow what is written: `rubric:stored` on the document carries revision and rubric,
   `rubric:chosen` the criterion; `rubric:add` takes one. */
import { useIcons } from "./rubric_dom.js";
import { CriterionForm } from "./rubric_form.js";
import { KindChooser } from "./rubric_kinds.js";
import { CriteriaList } from "./rubric_list.js";
import { askMerge } from "./rubric_merge.js";
import { Saving } from "./rubric_saving.js";
import { newGroup, showNotes, showScore } from "./rubric_score.js";
import { Store } from "./rubric_store.js";
import { Suggestions } from "./rubric_suggest.js";

export function mount(root) {
  const data = JSON.parse(document.getElementById("rubric-data").textContent);
  useIcons(data.icons);
  new Editor(root, data);
}

class Editor {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.notes = [];
    this.store = new Store(data);
    this.selected = this.store.criterion(decodeURIComponent(location.hash.slice(1)))?.id ?? this.store.criteria[0]?.id ?? null;
    this.find = (name) => root.querySelector(`[data-${name}]`);
    this.list = new CriteriaList({ list: this.find("list"), store: this.store, choose: (id, how) => this.choose(id, how) });
    this.form = new CriterionForm({ card: this.find("form"), store: this.store, data, actions: this.actions() });
    this.kinds = new KindChooser(document.querySelector("[data-kinds]"), data.kinds);
    this.saving = new Saving({
      store: this.store,
      url: data.urls.save,
      token: root.querySelector("[name=csrfmiddlewaretoken]").value,
      show: (state, text, body) => this.showState(state, text, body),
      onReading: (body) => this.read(body),
      onStale: (stale) => this.stale(stale),
      onTrouble: (text) => this.trouble(text),
    });
    new Suggestions({ box: this.find("suggest"), data, token: this.saving.token, take: (criterion) => this.take(criterion) });
    this.store.addEventListener("change", (event) => this.changed(event.detail.structural));
    this.wire();
    this.show(true);
    this.read(data.state);
    this.list.focus(this.selected);
  }

  actions() {
    return {
      move: (step) => this.move(step),
      duplicate: () => this.duplicate(),
      remove: () => this.remove(),
      named: () => this.named(),
      chooseKind: () => this.kinds.ask((kind) => this.setKind(kind), this.store.criterion(this.selected)?.kind),
      newGroup: () => newGroup(this.store, this.selected),
    };
  }

  wire() {
    for (const button of this.root.querySelectorAll("[data-add]")) button.addEventListener("click", () => this.add());
    for (const button of this.root.querySelectorAll("[data-undo]")) button.addEventListener("click", () => this.undo());
    document.querySelector("[data-publish]")?.addEventListener("click", (event) => {
      event.preventDefault();
      this.leave(event.currentTarget.href);
    });
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("rubric:add", (event) => this.take(event.detail));
  }

  /* --- what is shown ------------------------------------------------------------------------------------------ */

  changed(isStructural) {
    this.find("gone").hidden = true;
    if (isStructural && !this.store.criterion(this.selected)) this.selected = this.store.criteria[0]?.id ?? null;
    this.show(isStructural);
  }

  show(isWhole) {
    this.list.show(this.selected);
    this.find("none").hidden = this.store.criteria.length > 0;
    for (const button of this.root.querySelectorAll("button[data-undo]")) button.disabled = !this.store.past.length;
    if (isWhole) {
      const at = this.form.card.contains(document.activeElement) ? this.place(document.activeElement) : null;
      this.form.show(this.selected);
      this.restore(at);
      const inScore = this.find("score").contains(document.activeElement) ? this.place(document.activeElement) : null;
      showScore(this.find("score"), this.store, this.data);
      this.restore(inScore);
    }
    this.find("how").textContent = this.how();
    this.showNotes();
  }

  how() {
    const way = (this.store.spec.aggregation ?? "weighted_mean").replaceAll("_", " ");
    return this.store.criteria.some((criterion) => criterion.gate) ? `${way}, with gates` : way;
  }

  /* Where the focus is, in words that hold for the form that is drawn next. */
  place(element) {
    const box = element.closest("[data-form], [data-score]");
    const all = [...box.querySelectorAll("input, select, textarea, button")];
    return { box, index: all.indexOf(element) };
  }

  restore(at) {
    if (at) [...at.box.querySelectorAll("input, select, textarea, button")][at.index]?.focus({ preventScroll: true });
  }

  read(body) {
    this.notes = [...body.problems, ...body.findings];
    this.list.notes = new Map();
    for (const note of this.notes) {
      if (note.criterion) this.list.notes.set(note.criterion, [...(this.list.notes.get(note.criterion) ?? []), note]);
    }
    const n = document.querySelector("[data-n-changes]");
    if (n) n.textContent = body.n_changes ? `, ${body.n_changes} change${body.n_changes > 1 ? "s" : ""}` : ", no change";
    this.list.show(this.selected);
    this.showNotes();
    document.dispatchEvent(new CustomEvent("rubric:stored", { detail: { revision: body.revision, spec: this.store.stored } }));
  }

  showNotes() {
    this.form.notes(this.notes.filter((note) => note.criterion && note.criterion === this.selected));
    showNotes(this.find("notes"), this.find("note-count"), this.notes, this.store, (note) => this.goTo(note));
  }

  showState(state, text) {
    const line = document.querySelector("[data-save-state]");
    line.dataset.state = state;
    line.textContent = text;
    line.title = text;
  }

  trouble(text, action) {
    const box = document.querySelector("[data-trouble]");
    box.hidden = !text;
    box.querySelector("[data-trouble-text]").textContent = text;
    const actions = box.querySelector("[data-trouble-actions]");
    actions.replaceChildren(...(action ? [action] : []));
  }

  stale(stale) {
    this.trouble(`${stale.error} What you wrote is not stored yet: change anything, or reload the page to take theirs.`);
    const dialog = document.querySelector("[data-merge]");
    if (dialog.open) return;
    askMerge(dialog, stale, this.store, (spec) => {
      this.trouble("");
      this.store.stored = stale.spec;
      this.store.storedText = JSON.stringify(stale.spec);
      this.store.revision = stale.revision;
      this.store.replace("merging", spec);
      if (!this.store.isDirty) this.saving.show("saved", "saved: theirs");
      this.saving.soon(0);
      this.show(true);
    });
  }

  /* --- what is done ------------------------------------------------------------------------------------------- */

  choose(id, { isByKey = false, isByStep = false } = {}) {
    const isSame = id === this.selected;
    this.selected = id;
    if (!isSame) this.show(true);
    history.replaceState(null, "", `#${encodeURIComponent(id)}`);
    document.dispatchEvent(new CustomEvent("rubric:chosen", { detail: { criterion: id } }));
    if (!isByKey && !isByStep && !isSame) this.form.card.scrollIntoView({ block: "nearest" });
    if (isByKey) this.form.card.querySelector("[data-name]")?.focus();
    else this.list.focus(id);
  }

  add() {
    this.kinds.ask((kind) => {
      const after = this.selected;
      this.selected = this.store.add(kind, after);
      this.show(true);
      this.form.card.querySelector("[data-name]").focus();
      this.form.card.scrollIntoView({ block: "nearest" });
    });
  }

  /* A criterion from elsewhere on the page, for instance a suggestion. */
  take(criterion) {
    const item = structuredClone(criterion);
    item.id = this.store.unused(item.id || item.name || item.kind);
    this.selected = item.id;
    this.store.insert(`taking of ${item.name || item.id}`, item, null);
  }

  setKind(kind) {
    this.store.setKind(this.selected, kind);
    this.form.card.querySelector(".kind-btn")?.focus();
  }

  named() {
    const id = this.store.named(this.selected);
    if (id === this.selected) return;
    this.selected = this.form.id = id;
    this.form.card.querySelector(".hd .mono").textContent = id;
    this.list.show(id);
  }

  move(step) {
    this.store.move(this.selected, step);
  }

  duplicate() {
    this.selected = this.store.duplicate(this.selected);
    this.show(true);
    this.list.focus(this.selected);
  }

  remove() {
    const criterion = this.store.criterion(this.selected);
    if (!criterion) return;
    const at = this.store.criteria.indexOf(criterion);
    this.selected = (this.store.criteria[at + 1] ?? this.store.criteria[at - 1])?.id ?? null;
    this.store.remove(criterion.id);
    this.find("gone").hidden = false;
    this.find("gone-text").textContent = `${criterion.name || criterion.id} is deleted.`;
    if (this.selected) this.list.focus(this.selected);
    else this.find("none").querySelector("button").focus();
  }

  undo() {
    this.store.undo();
    this.show(true);
  }

  goTo(note) {
    this.choose(note.criterion);
    const field = this.form.card.querySelector(`[data-note="${CSS.escape(note.field)}"]`)?.closest(".field");
    (field?.querySelector("input, textarea, select, button") ?? this.form.card.querySelector("[data-name]")).focus();
  }

  async leave(address) {
    if (await this.saving.flush()) location.assign(address);
  }

  /* --- keys --------------------------------------------------------------------------------------------------- */

  key(event) {
    if (document.querySelector("dialog[open]") || event.isComposing || event.defaultPrevented) return;
    const isField = event.target.closest?.("input, select, textarea");
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step && event.altKey && this.selected && (!isField || this.form.card.contains(event.target))) this.move(step);
    else if (event.key === "Escape" && isField && this.root.contains(isField)) this.escape(isField);
    else if (isField || event.altKey || event.metaKey) return;
    else if (event.ctrlKey) {
      if (event.key !== "z") return;
      this.undo();
    } else if (!this.letter(event)) return;
    event.preventDefault();
  }

  escape(field) {
    field.blur();
    if (this.selected) this.list.focus(this.selected);
  }

  letter(event) {
    const isOnCard = this.list.focused !== null;
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key.toLowerCase() === "a") this.add();
    else if (event.key.toLowerCase() === "p") document.querySelector("[data-publish]").click();
    else if (event.key.toLowerCase() === "u") this.undo();
    else if (event.key.toLowerCase() === "d" && this.selected) this.duplicate();
    else if (isOnCard && step) this.neighbour(step);
    else if (isOnCard && event.key === "Delete") this.remove();
    else if (isOnCard && /^\d$/.test(event.key)) this.store.set(this.selected, "weight", Number(event.key) || 10, 1, { structural: true });
    else return false;
    return true;
  }

  neighbour(step) {
    const ids = this.store.criteria.map((criterion) => criterion.id);
    const id = ids[ids.indexOf(this.list.focused) + step];
    if (!id) return;
    this.choose(id, { isByStep: true });
  }
}
