"""What the rules that policies name mean, in words; a rule that is not here speaks for itself."""

from __future__ import annotations

__all__ = ["RULE_WORDS"]

RULE_WORDS: dict[str, str] = {
    "asked-by-owner": "its owner asked for it",
    "least-cost": "of all devices with room for it, these cost least by predicted memory and utilisation; beyond 100 % the cost "
    "rises steeply",
    "idle-device": "an idle device goes before a shared one",
    "best-fit-beside": "no device is idle; here least memory is left beside the others, and together they are predicted to get more "
    "done than without it",
    "shorter-first": "the one that is told to go would last longer than the other takes, and what that gains exceeds the price of "
    "saving and loading again",
    "starvation-guard": "a large job has waited too long, so devices are kept for it and emptied where that is worth the price",
    "fragment-before-reservation": "the devices are kept for a large job, but this one is predicted to be gone before",
    "devices-emptied": "those in its way have saved their state and gone",
    "reservation-broken": "what was kept can be had no more, so it is given up",
    "overdue-reservation": "the head of the queue has waited too long, so devices are kept for it until they are empty",
    "reservation-unusable": "a device that was kept has failed, or its tenant is at its limit, so it is given up",
    "same-affinity": "the least loaded server among those that host jobs of its size",
    "unassigned-server": "no server that hosts jobs of its size has room, so an empty one is taken",
    "any-server": "neither a server of its size nor an empty one has room, so it goes where devices are free",
    "over-subscribed": "no device is free; it takes turns with those who are there",
    "pack": "both are now on the device in the same turn; the pair stays only if their measured speeds, "
    "relative to alone, add up to more than turns give",
    "unpack": "side by side the measured speeds, relative to alone, added up to no more than turns give",
    "height-drops": "fewer jobs take turns there",
    "fair-turns": "those it leaves behind had fewer turns than others on this server",
    "locality": "one node has room for all its devices now",
    "defragment": "it empties a server of which most is free, so that larger jobs find room",
    "grow": "devices of its server were idle for a while",
    "room-made": "nothing is free and it suits nobody's company, so devices are kept for it and those that have much more left to "
    "do, or have had their turn, leave them",
    "gives-way": "it has had its turn, and of those in the way its priority or class is the lowest, or else its level the highest "
    "(each has twice as much predicted work left as the one below; newcomers are at 0)",
    "room-ready": "those that had to give way have saved their state and gone",
    "room-lost": "what was kept can be had no more, so it is given up",
    "longest-wait": "it has waited as long as anybody may, so the devices that can be empty soonest are kept for it alone",
    "overdue-first": "the one that is told to go has had its quantum, and the other has waited as long as anybody may",
    "sized-to-free": "it runs on any number of devices of its range, and so many of those that are free now are of use to it",
    "grown-to-free": "devices are free that nobody who waits can use, and of the elastic jobs that end sooner with more of them by "
    "many times the price of the change it has least left to do",
    "gives-devices": "somebody waits who fits nowhere, and it goes on with fewer: what it holds beyond what it declares first, else "
    "because it would have to give way",
    "own-devices": "devices are free, and alone there it ends sooner by more than the price of moving",
    "not-as-foretold": "measured, a job beside it is slower than any may be, whatever was predicted",
    "outside-prediction": "measured, somebody there is slower than the range that was predicted, and together they get no more done "
    "than it takes to be worth it",
    "shortest-service": "of those that fit, it is predicted to need least GPU time, and devices are free for it",
    "low-sharing-score": "the cluster is loaded, and by how much of a device each uses alone, these two should hardly disturb each "
    "other",
    "elastic-start": "it has none yet, so it gets the least that it runs on, and may grow later",
    "increment": "of all increments that running jobs propose, those go first that raise a job's throughput most for each device",
    "no-faster": "measured, it was slower with the devices it got last, so it gives them back",
    "given-back": "a waiting job with a guarantee needs them",
    "best-fit-fraction": "on the fullest node that has room, the device with least free compute that suffices",
    "closest-on-tree": "on the fullest node that has room, the devices that are linked most closely, from branches already broken into",
    "idle-compute-lent": "nobody is guaranteed that compute of its device now, so it may use more of it",
    "idle-compute-back": "a neighbour came who is guaranteed a part of that device, so it may use less than before, but never less than its own "
    "guarantee",
    "interleaves-best": "no device is free, and of all ways to add waiting jobs to running ones of their size this keeps input, GPU and "
    "network busy together best",
    "shrink-on-demand": "somebody waits, so it gives back what it holds beyond its request",
    "round-share": "by its share of time on this type of device it is furthest behind of those that this round has room for",
    "round-over": "in this round others are further behind their share of time, and one of them needs these devices",
    "round-moves": "in this round its share of time calls for other devices than it holds",
    "goodput-start": "every waiting job first gets the least that it runs on; what is left goes where it raises the harmonic mean of speedups most",
    "goodput-grow": "here more devices raise the harmonic mean of all jobs' speedups most, by more than the restart costs",
    "goodput-shrink": "other jobs gain more by these devices than it loses, in the harmonic mean of speedups",
    "goodput-move": "a larger job needs these devices in one piece, so it goes on elsewhere",
    "own-cell": "its tenant's own cells have room, and a cell of theirs can always be had in one piece",
    "own-cell-emptied": "those who used its tenant's cell meanwhile have gone",
    "idle-cells": "devices are idle; it has no claim to them and gives way as soon as a cell is needed there",
    "cell-needed": "it has no claim to these devices, and a tenant needs a cell of its own there",
    "first-that-fits": "devices that it can use are free",
    "free-devices": "as many devices as it needs are free",
    "whole-device": "it does not share, so it gets devices of its own",
    "best-partners": "of the sets it suits, the one that is predicted to gain most throughput by it; nobody there becomes too slow",
    "lower-rank": "in this policy's order the job that gets the devices goes before it",
    "first-in-rank": "in this policy's order it goes first of those that can start",
    "shortest-predicted": "of those that wait, it is predicted to take least time",
    "fewest-residents": "fewest jobs take turns there",
    "least-memory-left": "of all devices with room for it, least memory is left there",
    "least-fragmentation-added": "there it breaks up least of what other jobs could use in one piece",
    "backfill-outside-reservation": "it uses none of the devices that are kept for the head of the queue",
    "backfill-on-spare-devices": "the head of the queue will have enough devices without these",
    "backfill-ends-in-time": "it is predicted to be gone before the head of the queue can start",
    "backfill-delays-no-promise": "no job ahead of it is predicted to start later than it was promised",
    "within-quota": "its tenant is within its quota, and such jobs go first",
    "lowest-usage-per-weight": "its tenant has used least for its weight of those with jobs that fit",
    "reclaimed": "devices lent to others, or held by opportunistic jobs, were taken back for it, and they have gone",
    "opportunistic-gives-way": "it is opportunistic, and a job with a guarantee needs its devices",
    "lent-devices-reclaimed": "its tenant is beyond its quota, and a tenant within its own needs these devices",
}
"""Rule to what it means, as the second half of a sentence."""
