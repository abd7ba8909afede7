/* The inner loops of the lean buffers: what changed between two pieces, and a minibatch put together again.
 *
 * Plain C without Python: every function takes addresses and sizes, touches nothing else, and runs without the
 * interpreter's lock. `fallback.py` says the same in NumPy, and the tests hold one against the other.
 *
 * A piece is a fixed number of bytes. It is encoded as one byte that says how, then
 *   RAW   its bytes
 *   PREV  the runs that differ from the piece before it
 *   KEY   the runs that differ from the block's key
 *   SELF  the runs that differ from its own bytes one row earlier (nought before the first row)
 * A run is: how many bytes to skip, how many follow (both as varints, seven bits a byte), and those bytes.
 */
#include <stdint.h>
#include <string.h>

enum { RAW = 0, PREV = 1, KEY = 2, SELF = 3 };
enum { OK = 0, TORN = -1 };

#define MERGED_GAP 2 /* bytes that did not change but are cheaper to repeat than to skip */

static int64_t put_varint(uint8_t *out, uint64_t value) {
    int64_t written = 0;
    while (value >= 128) {
        out[written++] = (uint8_t)(value | 128);
        value >>= 7;
    }
    out[written++] = (uint8_t)value;
    return written;
}

static int get_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    uint64_t result = 0;
    for (int shift = 0; shift < 63 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        result |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *value = result;
            return OK;
        }
    }
    return TORN;
}

static int64_t first_difference(const uint8_t *one, const uint8_t *other, int64_t from, int64_t size) {
    while (from + 8 <= size) {
        uint64_t a, b;
        memcpy(&a, one + from, 8);
        memcpy(&b, other + from, 8);
        if (a != b) return from + __builtin_ctzll(a ^ b) / 8;
        from += 8;
    }
    while (from < size && one[from] == other[from]) from++;
    return from;
}

/* Write the runs in which `now` differs from `base`; return how many bytes, or -1 when they would not fit. */
int64_t lean_runs(const uint8_t *base, const uint8_t *now, int64_t size, uint8_t *out, int64_t room) {
    int64_t written = 0, done = 0, at = first_difference(base, now, 0, size);
    while (at < size) {
        int64_t end = at + 1, look = at + 1;
        while (look < size && look - end <= MERGED_GAP) {
            if (base[look] != now[look]) end = look + 1;
            look++;
        }
        if (written + 20 + (end - at) > room) return -1;
        written += put_varint(out + written, (uint64_t)(at - done));
        written += put_varint(out + written, (uint64_t)(end - at));
        memcpy(out + written, now + at, (size_t)(end - at));
        written += end - at;
        done = end;
        at = first_difference(base, now, end, size);
    }
    return written;
}

/* memcpy for the few bytes that most runs have: two moves that may overlap, and no call. */
static inline void copy_run(uint8_t *to, const uint8_t *from, uint64_t length) {
    if (length >= 8) {
        if (length > 16) {
            memcpy(to, from, (size_t)length);
            return;
        }
        memcpy(to, from, 8);
        memcpy(to + length - 8, from + length - 8, 8);
    } else if (length >= 4) {
        memcpy(to, from, 4);
        memcpy(to + length - 4, from + length - 4, 4);
    } else if (length >= 2) {
        memcpy(to, from, 2);
        memcpy(to + length - 2, from + length - 2, 2);
    } else if (length) {
        *to = *from;
    }
}

/* Read how much to skip and how much follows; most often each is one byte. */
static inline int get_head(const uint8_t **at, const uint8_t *end, uint64_t *skip, uint64_t *length) {
    if (end - *at >= 2 && (*at)[0] < 128 && (*at)[1] < 128) {
        *skip = (*at)[0];
        *length = (*at)[1];
        *at += 2;
        return OK;
    }
    return get_varint(at, end, skip) || get_varint(at, end, length) ? TORN : OK;
}

static int apply(uint8_t *piece, int64_t size, const uint8_t *at, const uint8_t *end) {
    uint8_t *place = piece;
    uint64_t left = (uint64_t)size;
    while (at < end) {
        uint64_t skip, length;
        if (get_head(&at, end, &skip, &length) || skip > left || length > left - skip ||
            length > (uint64_t)(end - at))
            return TORN;
        place += skip;
        copy_run(place, at, length);
        left -= skip + length;
        place += length;
        at += length;
    }
    return OK;
}

static void repeat_row(uint8_t *piece, int64_t from, int64_t to, int64_t row) {
    while (from < to) {
        int64_t length = to - from < row ? to - from : row;
        if (from < row) {
            if (length > row - from) length = row - from;
            memset(piece + from, 0, (size_t)length);
        } else {
            memcpy(piece + from, piece + from - row, (size_t)length);
        }
        from += length;
    }
}

static int apply_self(uint8_t *piece, int64_t size, int64_t row, const uint8_t *at, const uint8_t *end) {
    int64_t place = 0;
    while (at < end) {
        uint64_t skip, length;
        if (get_head(&at, end, &skip, &length) || skip > (uint64_t)(size - place)) return TORN;
        repeat_row(piece, place, place + (int64_t)skip, row);
        place += (int64_t)skip;
        if (length > (uint64_t)(size - place) || length > (uint64_t)(end - at)) return TORN;
        memcpy(piece + place, at, (size_t)length);
        place += (int64_t)length;
        at += length;
    }
    repeat_row(piece, place, size, row);
    return OK;
}

/* Decode one piece into `piece`; `before` is the piece before it, which may be `piece` itself. */
static int decode(uint8_t *piece, const uint8_t *before, const uint8_t *key, int64_t size, int64_t row,
                  const uint8_t *at, const uint8_t *end) {
    if (at >= end) return TORN;
    uint8_t how = *at++;
    switch (how) {
    case RAW:
        if (end - at != size) return TORN;
        memcpy(piece, at, (size_t)size);
        return OK;
    case PREV:
        if (before == 0) return TORN;
        if (before != piece) memcpy(piece, before, (size_t)size);
        return apply(piece, size, at, end);
    case KEY:
        if (key == 0) return TORN;
        memcpy(piece, key, (size_t)size);
        return apply(piece, size, at, end);
    case SELF:
        return apply_self(piece, size, row, at, end);
    default:
        return TORN;
    }
}

/* One chunk of consecutive pieces, where it lies. `offsets` is 0 for plain pieces, one after the other. The payload
 * is `bytes` long.
 */
struct chunk {
    uint64_t offsets, payload, key;
    int64_t pieces, bytes;
};

/* Put pieces together for a batch. Item i is `count` pieces, and its j-th is number `places[i * count + j]`, or
 * `places[i] + j` when they lie `together`. Piece p lies in chunk `p / length`; chains begin at each `group`-th piece.
 * Return 0, or 1 + the number of the item that could not be read.
 */
int64_t lean_gather(const struct chunk *chunks, int64_t n_chunks, int64_t length, int64_t group, int64_t size,
                    int64_t row, const int64_t *places, int64_t together, int64_t items, int64_t count,
                    int64_t item_bytes, uint8_t *out) {
    for (int64_t item = 0; item < items; item++) {
        uint8_t *piece = out + item * item_bytes;
        int64_t last = -2;
        for (int64_t j = 0; j < count; j++, piece += size) {
            int64_t place = together ? places[item] + j : places[item * count + j];
            int64_t number = place / length, index = place % length;
            if (place < 0 || number >= n_chunks || index >= chunks[number].pieces) return 1 + item;
            const struct chunk *chunk = &chunks[number];
            const uint8_t *payload = (const uint8_t *)(uintptr_t)chunk->payload;
            if (chunk->offsets == 0) {
                if ((index + 1) * size > chunk->bytes) return 1 + item;
                memcpy(piece, payload + index * size, (size_t)size);
                last = place;
                continue;
            }
            const uint32_t *offsets = (const uint32_t *)(uintptr_t)chunk->offsets;
            const uint8_t *key = (const uint8_t *)(uintptr_t)chunk->key;
            const uint8_t *before = 0;
            int64_t from = index - index % group;
            if (last == place - 1 && index % group) { /* go on from the piece just decoded */
                from = index;
                before = piece - size;
            }
            for (int64_t k = from; k <= index; k++) {
                if (offsets[k] > offsets[k + 1] || offsets[k + 1] > chunk->bytes) return 1 + item;
                if (decode(piece, before, key, size, row, payload + offsets[k], payload + offsets[k + 1]))
                    return 1 + item;
                before = piece;
            }
            last = place;
        }
    }
    return 0;
}

enum { SAME = 0, MOVED_ON = 1, NEW = 2, STILL = 3 };

/* What an observation is to the last one: the same, moved on by `shift` pieces, both, or neither. With a shift of 0,
 * being the same is standing still.
 */
static int kind_of(const uint8_t *now, const uint8_t *last, int64_t whole, int64_t gone) {
    int same = memcmp(now, last, (size_t)whole) == 0;
    int moved = gone ? memcmp(now, last + gone, (size_t)(whole - gone)) == 0 : same;
    return moved ? (same ? STILL : MOVED_ON) : (same ? SAME : NEW);
}

void lean_compare(const uint8_t *now, const uint8_t *last, int64_t items, int64_t count, int64_t size, int64_t shift,
                  uint8_t *out) {
    for (int64_t item = 0; item < items; item++, now += count * size, last += count * size)
        out[item] = (uint8_t)kind_of(now, last, count * size, shift * size);
}

/* The open end of a sequence: where its payload and offsets lie, and how far they are filled. */
struct tail {
    uint64_t payload, offsets;
    int64_t used, room, opened, offsets_room, plain;
};

#define LARGE_RUNS 8 /* runs beyond one part in so many of a piece are worth trying other ways, which Python does */

/* Append pieces to a tail if nothing special has to be done for it; return whether it was done. */
static int append(struct tail *tail, const uint8_t *before, const uint8_t *piece, int64_t pieces, int64_t size,
                  int64_t group, int64_t length) {
    int64_t used = tail->used, opened = tail->opened;
    uint8_t *payload = (uint8_t *)(uintptr_t)tail->payload;
    uint32_t *offsets = (uint32_t *)(uintptr_t)tail->offsets;
    if (opened + pieces >= length) return 0; /* a block is full: it has to be sealed */
    if (tail->plain) {
        if (used + pieces * size > tail->room) return 0;
        memcpy(payload + used, piece, (size_t)(pieces * size));
        tail->used = used + pieces * size;
        tail->opened = opened + pieces;
        return 1;
    }
    if (opened + pieces + 1 > tail->offsets_room) return 0;
    for (int64_t done = 0; done < pieces; done++, opened++) {
        int64_t room = size / LARGE_RUNS;
        if (opened % group == 0 || used + 1 + room > tail->room) return 0;
        int64_t written = lean_runs(before, piece, size, payload + used + 1, room);
        if (written < 0) return 0;
        payload[used] = PREV;
        used += 1 + written;
        offsets[opened + 1] = (uint32_t)used;
        before = piece;
        piece += size;
    }
    tail->used = used;
    tail->opened = opened;
    return 1;
}

/* Take one observation of each environment: compare it with the last, append what is new, and keep it as the last.
 * What cannot be done here is left alone and its kind + 1 is said in `left`; `ends` counts pieces. Return how many.
 */
int64_t lean_extend(struct tail *tails, const uint8_t *now, uint8_t *last, int64_t items, int64_t count, int64_t size,
                    int64_t shift, int64_t group, int64_t length, int64_t following, int64_t *ends, uint8_t *left) {
    int64_t whole = count * size, lefts = 0;
    for (int64_t item = 0; item < items; item++, now += whole, last += whole) {
        left[item] = 0;
        if (!following && memcmp(now, last, (size_t)whole) == 0) continue;
        int kind = kind_of(now, last, whole, shift * size);
        if (kind == SAME) continue;
        int64_t new = kind == NEW || shift == 0 ? count : shift;
        const uint8_t *piece = now + whole - new * size;
        if ((kind == NEW && count > 1) || !append(&tails[item], last + whole - size, piece, new, size, group, length)) {
            left[item] = (uint8_t)(kind + 1);
            lefts++;
            continue;
        }
        ends[item] += new;
        memcpy(last, now, (size_t)whole);
    }
    return lefts;
}
