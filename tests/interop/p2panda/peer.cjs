// Interop peer over p2panda-js: one JSON command per line on stdin, one JSON answer per line on stdout.
// "yamf" is p2panda-js 0.2.1 (BLAKE2b), "yasmf" is 0.8.1 (BLAKE3).
'use strict';

const readline = require('node:readline');

// A Rust panic reaches JavaScript as a bare "unreachable"; what it is about only goes to console.error.
let panic = null;
console.error = (text) => {
  panic = String(text).split('\n\nStack')[0];
};

// docs/protocol.md section 2: R(k) = (3^k - 1) / 2.
function lipmaa(n) {
  const repunits = [1];
  while (repunits.at(-1) < n) repunits.push(3 * repunits.at(-1) + 1);
  if (repunits.at(-1) === n) return n - (2 * n + 1) / 3;
  let x = n;
  while (!repunits.includes(x)) x -= repunits.findLast((r) => r < x);
  return n - x;
}

// `sign` makes one entry: (seq, backlink, skiplink) -> {entry, payload, hash}
function makeLog(count, sign) {
  const entries = [];
  const hashOf = (seq) => entries[seq - 1].hash;
  for (let seq = 1; seq <= count; seq++) {
    const backlink = seq > 1 ? hashOf(seq - 1) : undefined;
    // Left out where it equals the backlink: 0.8.1 would write it all the same, and then not decode the entry.
    const skiplink = seq > 1 && lipmaa(seq) !== seq - 1 ? hashOf(lipmaa(seq)) : undefined;
    entries.push(sign(seq, backlink, skiplink));
  }
  return { entries };
}

const yamf = {
  open: () => require('p2panda-js-yamf').wasm,

  public_key: (lib, { secret }) => ({ public_key: lib.KeyPair.fromPrivateKey(secret).publicKey() }),

  log(lib, { secret, log_id, count }) {
    // The library takes an i32 and wraps silently.
    if (!Number.isInteger(log_id) || log_id < 0 || log_id > 0x7fffffff) throw new Error('log_id outside 0..2^31-1');
    const key = lib.KeyPair.fromPrivateKey(secret);
    return makeLog(count, (seq, backlink, skiplink) => {
      const fields = new lib.MessageFields();
      fields.add('text', 'str', `entry ${seq}`);
      const payload = lib.encodeCreateMessage('0040' + 'ab'.repeat(64), fields);
      const signed = lib.signEncodeEntry(key, payload, skiplink, backlink, seq, log_id);
      return { entry: signed.entryEncoded, payload, hash: signed.entryHash };
    });
  },

  decode(lib, { entry, payload }) {
    const decoded = lib.decodeEntry(entry, payload ?? undefined);
    // The library hands 64 bit integers over as signed and rounded to a double; undefined leaves the key out.
    const exact = (n) => (Number.isSafeInteger(n) && n >= 0 ? n : undefined);
    return {
      log_id: exact(decoded.logId),
      seq_num: exact(decoded.seqNum),
      backlink: decoded.entryHashBacklink,
      lipmaa_link: decoded.entryHashSkiplink,
    };
  },
};

const yasmf = {
  async open() {
    const lib = require('p2panda-js-yasmf');
    await lib.initWebAssembly(); // only for the panic messages
    return lib;
  },

  public_key: (lib, { secret }) => ({ public_key: new lib.KeyPair(secret).publicKey() }),

  log(lib, { secret, log_id, count }) {
    // JSON.parse has rounded larger numbers already, and the library wraps above 64 bits.
    if (typeof log_id === 'number' && !Number.isSafeInteger(log_id)) throw new Error('log_id above 2^53: send a string');
    if (BigInt(log_id) >> 64n) throw new Error('log_id outside 0..2^64-1');
    const key = new lib.KeyPair(secret);
    return makeLog(count, (seqNum, backlink, skiplink) => {
      const operation = lib.encodeOperation({
        schemaId: 'note_0020' + 'ab'.repeat(32),
        fields: { text: `entry ${seqNum}` },
      });
      const entry = lib.signAndEncodeEntry({ logId: log_id, seqNum, backlink, skiplink, operation }, key);
      return { entry, payload: operation, hash: lib.generateHash(entry) };
    });
  },

  decode(lib, { entry, payload }) {
    const decoded = lib.decodeEntry(entry);
    // 0.2.1 checks this itself; 0.8.1 decodes entries without their payload.
    if (payload != null && lib.generateHash(payload) !== decoded.payloadHash) {
      throw new Error('payload does not match the payload hash');
    }
    return {
      author: decoded.publicKey,
      log_id: decoded.logId,
      seq_num: decoded.seqNum,
      backlink: decoded.backlink ?? null,
      lipmaa_link: decoded.skiplink ?? null,
      payload_hash: decoded.payloadHash,
      payload_size: decoded.payloadSize,
      signature: decoded.signature,
      hash: lib.generateHash(entry),
    };
  },
};

const flavours = { yamf, yasmf };
let opened = {};

async function answer(line) {
  panic = null;
  try {
    const command = JSON.parse(line);
    const flavour = flavours[command.flavour];
    if (!flavour || !['log', 'decode', 'public_key'].includes(command.do)) {
      throw new Error('unknown flavour or command');
    }
    opened[command.flavour] ??= await flavour.open();
    return flavour[command.do](opened[command.flavour], command);
  } catch (error) {
    const text = panic ?? error?.message ?? String(error);
    if (panic !== null || text.includes('unreachable')) {
      // A WebAssembly instance does not recover from a panic: the next command gets a new one.
      opened = {};
      for (const file of Object.keys(require.cache)) {
        if (file.includes('p2panda-js-')) delete require.cache[file];
      }
    }
    return { error: text };
  }
}

// BigInts as plain JSON integers: Python reads them exactly, whatever their size.
function toJson(value) {
  return JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? `${v}n` : v)).replace(/"(\d+)n"/g, '$1');
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(toJson(await answer(line)) + '\n');
  }
})();
