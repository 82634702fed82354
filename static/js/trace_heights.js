/* Heights of many rows: sums and the row at a place in log n (a Fenwick tree). */

export class Heights {
  constructor(heights) {
    this.length = heights.length;
    this.capacity = Math.max(1024, 2 * heights.length);
    this.values = new Float64Array(this.capacity);
    this.tree = new Float64Array(this.capacity + 1);
    this.values.set(heights);
    for (let i = 1; i <= this.capacity; i += 1) {
      this.tree[i] += this.values[i - 1];
      const parent = i + (i & -i);
      if (parent <= this.capacity) this.tree[parent] += this.tree[i];
    }
  }

  get(row) {
    return this.values[row];
  }

  set(row, height) {
    const difference = height - this.values[row];
    if (!difference) return;
    this.values[row] = height;
    for (let i = row + 1; i <= this.capacity; i += i & -i) this.tree[i] += difference;
  }

  /* False when there is no room: the caller builds a larger one. */
  push(height) {
    if (this.length === this.capacity) return false;
    this.length += 1;
    this.set(this.length - 1, height);
    return true;
  }

  /* Height of all rows before `row`. */
  sum(row) {
    let total = 0;
    for (let i = Math.min(row, this.length); i > 0; i -= i & -i) total += this.tree[i];
    return total;
  }

  get total() {
    return this.sum(this.length);
  }

  /* The row at `y` px from the top. */
  find(y) {
    let row = 0;
    let left = y;
    for (let step = 2 ** Math.floor(Math.log2(this.capacity)); step > 0; step /= 2) {
      if (row + step <= this.capacity && this.tree[row + step] <= left) {
        row += step;
        left -= this.tree[row];
      }
    }
    return Math.max(0, Math.min(this.length - 1, row));
  }
}
