"""Random allocation traces: lists of events as kernels/memory/replay.h reads them."""

MIB = 1 << 20


def draw_size(rng, largest):
    """All magnitudes alike, with the borders of the rounding rules often hit."""
    kind = rng.random()
    if kind < 0.15:
        border = rng.choice([512, 2048, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB, 64 * MIB])
        size = border + rng.choice([-513, -1, 0, 1, 511, 512, 4096, MIB, MIB + 512])
    elif kind < 0.3:
        size = rng.randrange(1, 24) * rng.choice([MIB // 2, MIB, 2 * MIB])
    else:
        size = int(2 ** rng.uniform(0, 26))
    return max(1, min(size, largest))


class Builder:
    """Events so far, and which ids live."""

    def __init__(self, rng, streams):
        self.rng, self.streams = rng, streams
        self.events, self.live, self.next_id = [], [], 0

    def alloc(self, size, stream=0):
        event = ["alloc", self.next_id, size]
        self.events.append(event + [stream] if stream else event)
        self.live.append(self.next_id)
        self.next_id += 1
        return self.next_id - 1

    def free(self, key, cross_stream=0.0):
        if self.streams > 1 and self.rng.random() < cross_stream:
            self.events.append(["record_stream", key, self.rng.randrange(self.streams)])
        self.events.append(["free", key])
        self.live.remove(key)

    def free_any(self, cross_stream=0.0):
        if self.live:
            self.free(self.rng.choice(self.live), cross_stream)

    def add(self, *event):
        self.events.append(list(event))


def mixed(b, steps, largest):
    """No pattern at all."""
    for _ in range(steps):
        what = b.rng.random()
        if what < 0.54:
            b.alloc(draw_size(b.rng, largest), b.rng.randrange(b.streams))
        elif what < 0.95:
            b.free_any(cross_stream=0.3)
        elif what < 0.975 and b.streams > 1:
            b.add("progress", b.rng.randrange(b.streams))
        elif what < 0.985:
            b.add("empty_cache")
        elif what < 0.99:
            b.add("reset_peak")


def training(b, steps, largest):
    """Forward allocates, backward frees in reverse with temporaries between, sizes recur and
    change a little from step to step as sequence lengths do."""
    layers = b.rng.randrange(3, 9)
    shapes = [draw_size(b.rng, largest // layers) for _ in range(b.rng.randrange(3, 7))]
    for size in shapes:
        b.alloc(size)  # weights stay
    kept = list(b.live)
    while len(b.events) < steps:
        scale = b.rng.choice([1.0, 1.0, 0.97, 1.1, 0.5])
        saved = []
        for _ in range(layers):
            for size in shapes:
                key = b.alloc(max(1, int(size * scale)))
                if b.rng.random() < 0.4:
                    b.free(key)
                else:
                    saved.append(key)
        for key in reversed(saved):
            temporary = b.alloc(max(1, int(b.rng.choice(shapes) * scale)))
            b.free(key, cross_stream=0.05)
            b.free(temporary)
        if b.rng.random() < 0.2:
            b.add("empty_cache")
    for key in kept:
        b.free(key)


def overlapping(b, steps, largest):
    """One stream computes, another communicates: buffers are recorded on the other stream."""
    bucket = draw_size(b.rng, largest)
    for _ in range(steps // 6):
        stream = b.rng.randrange(b.streams)
        for _ in range(b.rng.randrange(1, 4)):
            b.alloc(draw_size(b.rng, largest // 2), stream)
        key = b.alloc(bucket, stream)
        for other in range(b.streams):
            if other != stream and b.rng.random() < 0.6:
                b.add("record_stream", key, other)
        b.free(key)
        if b.rng.random() < 0.3 and b.streams > 1:
            b.add("progress", b.rng.randrange(b.streams))
        while len(b.live) > 12:
            b.free_any(cross_stream=0.2)


def draw_trace(rng, capacity_bytes, single_stream=False):
    """One trace with three checks on the way and one at the end."""
    b = Builder(rng, 1 if single_stream else rng.choice([1, 3, 3, 4]))
    pattern = rng.choice([mixed, mixed, training, overlapping])
    # The larger the requests against the device, the more it runs out of memory.
    largest = int(capacity_bytes / rng.choice([3, 6, 12, 40]))
    pattern(b, rng.randrange(150, 500), largest)
    for part in (1, 2, 3):
        b.events.insert(part * len(b.events) // 4, ["check"])
    b.add("check")
    return {"events_complete": rng.choice(["at_once", "late"]), "events": b.events}
