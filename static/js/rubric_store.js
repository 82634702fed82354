/* The rubric while it is written: what it says, what is stored of it, and how to go back. */

const HISTORY = 200;

export class Store extends EventTarget {
  constructor(data) {
    super();
    this.kinds = new Map(data.kinds.map((kind) => [kind.name, kind]));
    this.published = new Set(data.published);
    this.fresh = new Set();
    this.past = [];
    this.coalescing = "";
    this.adopt(data.spec, data.state.revision);
  }

  /* What the server has; nothing is left to store. */
  adopt(spec, revision) {
    this.spec = structuredClone(spec);
    this.spec.criteria ??= [];
    this.stored = structuredClone(this.spec);
    this.storedText = JSON.stringify(this.spec);
    this.revision = revision;
  }

  get text() {
    return JSON.stringify(this.spec);
  }

  get isDirty() {
    return this.text !== this.storedText;
  }

  get criteria() {
    return this.spec.criteria;
  }

  get groups() {
    return Array.isArray(this.spec.groups) ? this.spec.groups : [];
  }

  criterion(id) {
    return this.criteria.find((criterion) => criterion.id === id);
  }

  kindOf(criterion) {
    return this.kinds.get(criterion.kind);
  }

  /* `label`: what Undo would take back. Changes with the same `run` in a row are taken back together. */
  change(label, mutate, { run = "", structural = false } = {}) {
    const before = this.text;
    mutate(this.spec);
    if (this.text === before) return;
    if (!run || run !== this.coalescing) {
      this.past.push({ label, text: before });
      if (this.past.length > HISTORY) this.past.shift();
    }
    this.coalescing = run;
    this.tell(structural);
  }

  undo() {
    const last = this.past.pop();
    if (!last) return null;
    this.spec = JSON.parse(last.text);
    this.coalescing = "";
    this.tell(true);
    return last.label;
  }

  replace(label, spec) {
    this.change(label, () => (this.spec = structuredClone(spec)), { structural: true });
  }

  tell(structural) {
    this.dispatchEvent(new CustomEvent("change", { detail: { structural } }));
  }

  /* --- criteria ---------------------------------------------------------------------------------------------- */

  add(kindName, after) {
    const kind = this.kinds.get(kindName);
    const criterion = { id: this.unused(kindName), kind: kindName };
    if (Object.keys(kind.start).length) criterion.params = structuredClone(kind.start);
    criterion.scope = kind.scopes[0];
    this.fit(criterion, kind);
    this.fresh.add(criterion.id);
    this.insert(`adding of ${kind.label}`, criterion, after);
    return criterion.id;
  }

  insert(label, criterion, after) {
    const at = this.criteria.findIndex((item) => item.id === after);
    this.change(label, (spec) => spec.criteria.splice(at < 0 ? spec.criteria.length : at + 1, 0, criterion), {
      structural: true,
    });
  }

  /* Scope and sign that the kind can have. */
  fit(criterion, kind) {
    const scope = criterion.scope ?? "final_answer";
    if (!kind.scopes.includes(scope)) criterion.scope = kind.scopes[0];
    if (criterion.scope === "final_answer") delete criterion.scope;
    if (kind.negative === true) criterion.negative = true;
    if (kind.negative === false) delete criterion.negative;
  }

  setKind(id, kindName) {
    const kind = this.kinds.get(kindName);
    this.change(
      "another kind",
      () => {
        const criterion = this.criterion(id);
        const known = new Set(kind.params.map((param) => param.name));
        const kept = Object.entries(criterion.params ?? {}).filter(([name]) => known.has(name));
        criterion.kind = kindName;
        criterion.params = { ...kind.start, ...Object.fromEntries(kept) };
        if (!Object.keys(criterion.params).length) delete criterion.params;
        this.fit(criterion, kind);
      },
      { structural: true },
    );
  }

  duplicate(id) {
    const copy = structuredClone(this.criterion(id));
    copy.id = this.unused(`${id}_copy`);
    if (copy.name) copy.name = `${copy.name} (copy)`.slice(0, 120);
    this.fresh.add(copy.id);
    this.insert(`duplicate of ${copy.name ?? id}`, copy, id);
    return copy.id;
  }

  remove(id) {
    const criterion = this.criterion(id);
    this.change(
      `delete of ${criterion.name || id}`,
      (spec) => (spec.criteria = spec.criteria.filter((item) => item.id !== id)),
      { structural: true },
    );
  }

  moveTo(id, index) {
    this.change(
      "move",
      (spec) => {
        const from = spec.criteria.findIndex((item) => item.id === id);
        const to = Math.max(0, Math.min(spec.criteria.length - 1, index));
        const [item] = spec.criteria.splice(from, 1);
        spec.criteria.splice(to, 0, item);
      },
      { structural: true },
    );
  }

  move(id, step) {
    this.moveTo(id, this.criteria.findIndex((item) => item.id === id) + step);
  }

  /* A field that has its default is not written. */
  set(id, name, value, fallback, options) {
    this.change(
      `change of ${name}`,
      () => {
        const criterion = this.criterion(id);
        if (value === fallback || value === undefined) delete criterion[name];
        else criterion[name] = value;
      },
      options ?? { run: `${id}.${name}` },
    );
  }

  setParam(id, name, value, options) {
    this.change(
      `change of ${name}`,
      () => {
        const criterion = this.criterion(id);
        criterion.params ??= {};
        if (value === undefined) delete criterion.params[name];
        else criterion.params[name] = value;
        if (!Object.keys(criterion.params).length) delete criterion.params;
      },
      options ?? { run: `${id}.params.${name}` },
    );
  }

  /* A name gives a new criterion its id, once: from then on the id stays, whatever the name. */
  named(id) {
    const criterion = this.criterion(id);
    if (!criterion?.name || !this.fresh.delete(id)) return id;
    const better = slug(criterion.name);
    if (!better || better === id) return id;
    criterion.id = this.unused(better);
    this.tell(false);
    return criterion.id;
  }

  unused(wanted) {
    const head = (slug(wanted) || "criterion").slice(0, 58);
    const taken = new Set([...this.criteria.map((item) => item.id), ...this.published]);
    for (let number = 1; ; number += 1) {
      const id = number === 1 ? head : `${head}_${number}`;
      if (!taken.has(id)) return id;
    }
  }
}

export function slug(text) {
  return text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "_")
    .replace(/^_+|_+$/g, "")
    .slice(0, 48);
}
