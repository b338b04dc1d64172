"""The arrays of serving engines: requests, instances, blocks of keys and values, steps under way.

Each array has a row per thing. Its columns are declared here, once. Times are in ns, references
are row numbers, and -1 is nothing.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.columns import Columns, column

FAR = 1 << 62  # a time that never comes
REASONS = 6  # why no more requests were admitted in a step: the spans of INSTANCE.bound


class SETTING(Columns, of="settings"):
    """What holds for all instances. Flags are 0 or 1."""

    budget = column("tokens of a step at most")
    sequences = column("running requests of an instance at most")
    block = column("tokens of a block")
    reserves = column("flag: a request is admitted if all that is known of it has room")
    reuses = column("flag: blocks of equal content are found again")
    instances = column("how many groups there are, of all instances")
    prefills = column("how many of them, from the first, only read prompts; 0: each does all")
    routing = column("who takes a request: 0 in turn, 1 who has the fewest, 2 by its session")
    host = column("of the host's part of a step", "ns")
    launch = column("of the host to launch a step that reads prompts, beyond that", "ns")
    hidden = column("flag: the host's part goes along with the device's")
    wait_steps = column("steps for which prompts wait for more of them at most")
    wait_tokens = column("tokens of a step from which they do not wait")
    drafts = column("tokens that a step of a request guesses")
    accepted = column("chance that a guess is right, in 2**53")
    seed = column("of these guesses")
    tiers = column("memory tiers behind the device's memory")
    links = column("links of an instance over which blocks come and go")
    next_arrival = column("the first place of ``arrivals`` that is not over")
    heap = column("how many requests the heap holds")
    turn = column("who is next in turn")
    turn_decode = column("who of those that only generate is")
    done = column("requests that are done")
    stored = column("blocks that were written to tiers")


class REQUEST(Columns, of="requests"):
    """Of a request."""

    arrival = column("when it comes", "ns")
    prompt = column("tokens of its prompt")
    output = column("tokens that it generates")
    stream = column("its content: equal streams are equal at each place")
    group = column("the content of its first ``shared`` blocks")
    shared = column("how many blocks of its prompt it has in common with its group")
    content = column("its first place in ``content``")
    told = column("how many blocks have their content there")
    follower = column("the request that comes when it is done")
    pause = column("time from the end of the one that it follows to its arrival", "ns")
    known = column("tokens of it that are known, or will be when the steps under way end")
    computed = column("tokens whose keys and values exist, or will")
    generated = column("tokens that were generated, or will be")
    slot = column("its row of ``tables``")
    blocks = column("how many blocks it has")
    moved = column("flag: its keys and values come from another instance")
    source = column("that instance")
    ready = column("when they are loaded", "ns")
    link = column("the link over which the last of them come")
    passed = column("when they have passed it", "ns")
    next = column("the request behind it in its queue")
    instance = column("where it is")
    state = column("0 in a queue, 1 running, 2 loading, 3 put out while its last step ran")
    flight = column("number of the last step that it is in")
    queued = column("when the engine saw it", "ns")
    first = column("when its first token was there", "ns")
    last = column("when its last token was", "ns")
    hits = column("tokens of it that were found, in all admissions")
    put_out = column("how often it was put out")


class INSTANCE(Columns, of="instances"):
    """Of an instance of the engine, or of a group of its ranks that has requests of its own.

    Groups of an instance are neighbors that step together: what is of steps is the first one's.
    """

    lead = column("the first group of the same instance")
    groups = column("how many the instance has")

    head = column("the first request that waits")
    tail = column("the last request that waits")
    waiting = column("how many wait")
    running = column("how many run")
    loading = column("how many wait for their keys and values")
    slots = column("how many rows of ``tables`` are free")
    depth = column("steps under way at once: 2 if the next is prepared while one runs")
    stages = column("of a pipeline")
    flights = column("steps under way")
    oldest = column("which of ``flights`` ends first")
    launched = column("number of the last step that began")
    landed = column("number of the last step that ended")
    free_at = column("when the first stage is free", "ns")
    sleeps = column("flag: nothing is under way")
    waited = column("steps for which prompts have waited for more of them")
    load = column("requests that are here")
    steps = column("how many there were")
    busy = column("time of all steps", "ns")
    dense = column("of which for products with weights and what goes by tokens", "ns")
    memory = column("of ``dense``, what the device's memory bounds", "ns")
    network = column("of ``dense``, collectives", "ns")
    prefill = column("of which for attention of prompts", "ns")
    decode = column("of which for attention of generated tokens, beyond that", "ns")
    heads = column("of which for logits and samples", "ns")
    host = column("of which for the host alone", "ns")
    beside = column("of which because blocks pass the links of collectives", "ns")
    tokens = column("that were computed")
    hit_tokens = column("that were found in the device's memory")
    loaded_tokens = column("that were loaded from a tier, or from another instance")
    lost_tokens = column("whose keys and values were given up")
    put_out = column("how often a request was")
    bound = column("time of steps by why no more requests were in them: none waited, tokens of a "
                   "step, requests, blocks, loads, few prompts", "ns", span=REASONS)  # fmt: skip
    in_system = column("sum over time of the requests that are here", "ns")
    seen = column("until when it was summed up", "ns")
    most_blocks = column("used at once")


class FLIGHT(Columns, of="flights"):
    """Of a step under way."""

    start = column("when it begins", "ns")
    end = column("when it ends", "ns")
    reason = column("why no more requests are in it")
    events = column("how many requests it begins or ends the answer of")


class CACHE(Columns, of="caches"):
    """Of a memory for blocks: that of each instance, and behind them those of tiers."""

    first = column("its first block")
    size = column("how many it has")
    place = column("its first place in ``places``")
    mask = column("how many places it has, less 1")
    head = column("the block that is given away first")
    tail = column("the block that is last")
    free = column("how many blocks nobody uses")


class BLOCK(Columns, of="blocks"):
    """Of a block."""

    users = column("requests that use it")
    before = column("in the order in which blocks are given away")
    after = column("in that order")
    content = column("what it holds; 0 if nothing that can be found")


class TIER(Columns, of="tiers"):
    """Of a memory tier."""

    cache = column("its first cache")
    sharing = column("how many neighboring instances have one in common")
    link = column("which link of an instance leads to it")
    memory = column("the first channel of the memory itself")
    latency = column("of a transfer", "ns")
    duplex = column("flag: reading and writing do not share the memory's bandwidth")


class CHANNEL(Columns, of="channels"):
    """Of what transfers share, one after the other."""

    free = column("when it is free for reading, and for writing", "ns", span=2)
    moved = column("blocks read, and written", span=2)
    busy = column("time", "ns")


class BATCH(Columns, of="batch"):
    """Of the step that is being made: of each group's part."""

    left = column("tokens that have room")
    decodes = column("requests that generate")
    context = column("tokens before those, in all")
    rows = column("requests that get a token")
    chunks = column("of prompts")
    events = column("requests that begin or end")
    reason = column("why no more were admitted")


class Engines(NamedTuple):
    """All instances; arrays of int64, but for the last nine (float64)."""

    settings: np.ndarray
    requests: np.ndarray
    content: np.ndarray  # (places,): content of blocks of prompts whose tokens are known
    arrivals: np.ndarray  # (requests that follow no other,): in the order of arrival
    heap: np.ndarray  # (requests, 2): time and request, those that follow others
    instances: np.ndarray
    wake: np.ndarray  # (instances,): when each is looked at next
    running: np.ndarray  # (instances, sequences): requests, in the order of admission
    loading: np.ndarray  # (instances, sequences)
    slots: np.ndarray  # (instances, 2 * sequences): free rows of ``tables``
    tables: np.ndarray  # (instances, 2 * sequences, blocks): blocks of each request
    flights: np.ndarray  # (instances, depth, columns)
    events: np.ndarray  # (instances, depth, 2 * sequences): 2 * request, and 1 more at the end
    caches: np.ndarray
    blocks: np.ndarray
    places: np.ndarray  # a block, and 1 more, where its content is looked for
    tiers: np.ndarray
    channels: np.ndarray
    batch: np.ndarray  # (instances, columns)
    chunks: np.ndarray  # (instances, sequences, 2): tokens of each chunk, and before it
    spent: np.ndarray  # (instances, 2): ns of attention of prompts, and of what generates
    # (2, tiers + 1, 3): ns of a block on the link, and in the memory when read and when written; of
    # instances that only read prompts, and of others; the last row is between instances
    pace: np.ndarray
    wires: np.ndarray  # (2, links, tokens + 1): ns for which collectives of a step keep a link
    kept: np.ndarray  # (instances, depth, links): the same of steps under way, as a share
    # (2, tokens + 1, 5): ns by tokens of a step, of these what memory bounds, and collectives, and
    # those of experts, and what of them memory bounds; of prompts alone, of others
    dense: np.ndarray
    heads: np.ndarray  # (2, sequences + 1): ns by requests that get a token
    axes: np.ndarray  # (4, points): chunk, tokens before it, decodes, tokens before each
    attention: np.ndarray  # (2, *points of the axes): ns
    crowded: np.ndarray  # (2, *points of the first two axes): ns
