/**
 * Reads the blocks of data that the page carries: deflated, in base64, columns of whole numbers and one JSON text.
 * `pack.py` writes them. Knows nothing of graphs.
 */

/** @typedef {Int32Array | Float64Array} Column */
/** @typedef {{[name: string]: Column}} Columns */
/** @typedef {{columns: Columns, head: any}} Block */

/**
 * @param {string} id of the script element that holds the block
 * @returns {Promise<Block>}
 */
export async function readBlock(id) {
  const element = document.getElementById(id);
  const text = (element?.textContent || "").trim();
  return unpack(await inflate(fromBase64(text)));
}

/**
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function fromBase64(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<Uint8Array>}
 */
async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * @param {Uint8Array} bytes
 * @returns {Block}
 */
export function unpack(bytes) {
  const size = bytes[0] + bytes[1] * 256 + bytes[2] * 65536 + bytes[3] * 16777216;
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  /** @type {Columns} */
  const columns = {};
  let at = 4 + size;
  for (const [name, count, length, wide] of head.columns) {
    columns[name] = column(bytes, at, count, wide);
    at += length;
  }
  return { columns, head };
}

/**
 * Differences as zigzag numbers of 7 bits a byte.
 * @param {Uint8Array} bytes
 * @param {number} at
 * @param {number} count
 * @param {number} wide whether numbers are beyond 32 bits
 * @returns {Column}
 */
export function column(bytes, at, count, wide) {
  const out = wide ? new Float64Array(count) : new Int32Array(count);
  let before = 0;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++];
    let number = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[at++];
      number += (byte & 127) * scale;
    }
    before += number % 2 ? -(number + 1) / 2 : number / 2;
    out[i] = before;
  }
  return out;
}
