"""The text under each figure: what is drawn, what a reader may conclude from it, what not."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Caption:
    """A caption in three parts, in plain words."""

    drawn: str
    may: str
    may_not: str


def caption(kind: str, facts: Mapping[str, object]) -> Caption:
    """The caption of a kind of figure.

    Parameters
    ----------
    kind
        A name of :mod:`midtrace.figures.catalogue`.
    facts
        ``sample`` (items and runs in words), ``level`` (e.g. ``95%``), ``readout`` (``probe`` or ``continuation``), ``margin`` (points).
    """
    sample, level, readout, margin = (str(facts[name]) for name in ("sample", "level", "readout", "margin"))
    read = {
        "probe": "the forced-answer probe (the reasoning is closed and the option with the highest probability counts)",
        "continuation": "a greedy continuation after the reasoning is closed (there are no options to probe)",
    }[readout]
    forced, its, same = {
        "probe": ("the probe", "the probe's choice", "is the answer"),
        "continuation": ("the continuation", "the answer that is continued greedily after a forced close", "is right or wrong as is the answer"),
    }[readout]
    follows = {"probe": " Right: how often it is the answer that the model writes greedily from the same place.", "continuation": ""}[readout]
    alike = {"probe": "are the same", "continuation": "are both right or both wrong"}[readout]
    intervals = f"Whiskers and bands are {level} intervals (bootstrap over items)."
    return {
        "decomposition": Caption(
            f"At each horizon B every pair of runs is in one of four states: only the treatment has finished, both still think, only the reference "
            f"has finished, both have finished. The coloured parts are what the pairs in each state contribute to the difference in accuracy, "
            f"treatment minus reference; parts above and below zero add up to the total (diamond). Y takes the run's own answer once it has "
            f"finished and {read} before; Y_sym takes {forced} for both arms whatever their state, under one shared prompt. {sample} {intervals}",
            "Where the total comes from. A blue part says: the shorter run had its answer ready while the other was still on its way. A green part "
            "says: the unfinished reasoning itself differs in what it already knows. If Y and Y_sym look alike, neither reading nor prompt matters.",
            "The states are consequences of the arms, not groups drawn beforehand: a part is an account of the total, not the causal effect in a "
            "fixed kind of item. The diamond's interval belongs to the total, not to the parts; intervals of the parts are in the tables.",
        ),
        "split": Caption(
            f"The difference at B under one shared prompt, both arms read in the same way (Y_sym), in two parts. Green: the treatment's "
            f"reasoning against as many tokens of the reference. Red: what the reference's tokens beyond the treatment's end, up to B, take "
            f"from the lead (below zero: they made the reference more accurate) or add to it. The two add up to the total (diamond). Where the"
            f" treatment still thinks at B, all is at equal length. {sample} {intervals}",
            "A total that is all green is there token for token. A green part that red takes back says: the treatment had finished with its "
            "answer, and the reference, given more tokens, caught up.",
            "That the red part is what the reference would lose if it were made to stop: it is read by a forced answer at the treatment's length.",
        ),
        "bounds": Caption(
            f"Left: where only one run of a pair has finished, the other one can only be read. The difference at B with that reading replaced "
            f"in turn: by each way of reading (markers), and by the most and the least favourable of them, pair by pair (grey field, thin "
            f"line: to the outer limits). The cross puts the answer that the unfinished run gave in the end: more reasoning, so a benchmark "
            f"and no bound. Right: the pairs that both still think are selected by what both arms did. Grey: trimming bounds, if whoever still"
            f" thinks under the arm that finishes more runs would under the other, too. Orange: items weighed by the length of their reference"
            f" runs as among all items that have such pairs. {sample} {intervals}",
            "If the grey field on the left stays on one side of zero, no choice among these readings makes the difference. If the one on the "
            "right does, selection of that kind does not either.",
            "That a fault which all readings share is bounded: for that, see how large a share of these pairs would have to be misread (in "
            "the text).",
        ),
        "policy": Caption(
            f"Upper panels: the share of runs answered right if every run is stopped at B reasoning tokens (Y: its own answer if it has finished, "
            f"else {read}). Lower panels: the share of runs that have finished by B (Kaplan-Meier; runs that hit the token cap count as unfinished "
            f"at their cap). {sample} {intervals}",
            "How much accuracy a token budget buys with each arm, and at which budgets the arms differ.",
            "That one arm reasons better than the other: an arm can lead at B merely because it finishes earlier. Bands that overlap do not show "
            "that arms are equal, and the comparison of arms is the paired one in the first figure.",
        ),
        "matched": Caption(
            f"For every pair whose treatment run finished, the reference run is cut at the same number of tokens (or taken whole if it finished "
            f"earlier), and both are read in the same way under one shared prompt. Left: the difference, with the margin of {margin} points that "
            f"counts as no difference. Right: the two accuracies behind it. {sample} {intervals}",
            "Whether equally many tokens carry equally much. Near zero: the shorter arm left out what did not matter. Far from zero: the arms spend "
            "their tokens differently.",
            "That a contrast whose interval includes zero shows equality: only the equivalence test does, and its verdict is in the headline.",
        ),
        "early": Caption(
            f"The mean probability that the probe gives to the right option when the reasoning is closed at B, both arms read under one shared "
            f"prompt. {sample} {intervals}",
            "How early the answer begins to be known, also where it is not yet the most probable option.",
            "What the model would say by itself: the probe forces an answer that no run has chosen to give. A mean of probabilities says nothing "
            "about single items.",
        ),
        "lengths": Caption(
            f"Left: reasoning tokens per run (median, quartiles, 5th and 95th percentile; truncated runs at the cap). Right: the share of runs "
            f"that have finished by B; markers with bars are at the horizons of the study. Malformed runs are left out. {sample} {intervals}",
            "How much the arms change the length of the reasoning, and which horizons fall between them.",
            "Anything about accuracy.",
        ),
        "validity": Caption(
            f"How often {its} {same} that the same run gave in the end, by the share of its reasoning that is read (100%: the whole block), under "
            f"the run's own prompt.{follows} Arms are set side by side. {sample} {intervals}",
            f"On whole blocks{', and against the continuation,' if readout == 'probe' else ''} agreement near 100% says that {forced} reads what the "
            "model would answer.",
            f"That low agreement on short prefixes is a fault of {forced}: there the run has not found its answer yet, and agreement near chance is "
            "what one expects. Arms with fewer unfinished runs have fewer pairs at long horizons.",
        ),
        "falsifier": Caption(
            f"Every pair at equal length gives one prefix of the reference run, as long as the treatment's whole reasoning. Where the reference was "
            f"still thinking there, {forced} on that prefix is compared with the answer which the same run gave when it had finished. Left: how "
            f"often they {alike}. Right: the accuracy of {forced} minus that of the later answer. From left to right, prefixes hold more of "
            f"the run's reasoning; shares with a single item are left out. {sample} {intervals}",
            f"If the two meet as the prefix nears the whole reasoning, {forced} misses nothing that is there. This is the test that could show "
            f"{forced} to be wrong.",
            f"That a gap on short prefixes is a fault of {forced}: the run went on to learn more. It is one only where the gap stays as the share "
            "nears 100%, or where no more was learnt.",
        ),
        "controls": Caption(
            f"The probe behind constructed reasoning. A scripted text states an option first or last and fills the rest with words that say nothing; "
            f"or the run's own reasoning is read, shuffled, exchanged for that of another item, or replaced by random tokens. Dots: the right option "
            f"was chosen; squares: the stated option was chosen. {sample} {intervals}",
            "The instrument works if stated options are followed, right or wrong, early or late, and if texts that do not hold the answer leave the "
            "probe at chance.",
            "That a real prefix is read without error: a script is easier to read than a thought. A shuffled block can stay above chance, since its "
            "tokens still hold traces of the answer.",
        ),
        "methods": Caption(
            f"The contrasts of the headline, each by every method of inference: bootstrap over items (blue: the one that the report uses), over "
            f"items and replicates within them, over items and replicates crossed, a model with crossed random intercepts, and each replicate alone. "
            f"B is the horizon of the headline. {sample} Bars are {level} intervals.",
            "Does the verdict depend on the inference method? Not if every interval lies on the same side of zero.",
            "That the widest interval is the most honest one. Nested and two-way bootstrap count the luck of single runs more than once and are too "
            "wide where it is large; the crossed model has hardly a degree of freedom with two replicates. Measured coverage: docs/inference.md.",
        ),
        "planted": Caption(
            f"What was built into the embedded model against what the pipeline found, each effect on its own scale. Green line: the value that was "
            f"built in; green field: the range that was promised; red cross: missed. {sample} {intervals}",
            "Whether the instrument finds effects that are known to be there, and their size.",
            f"That every interval covers its planted value by necessity: at {level} about one in twenty misses by chance alone, and a model that was "
            f"trained on a construction follows it only nearly.",
        ),
    }[kind]


INTERRUPTIONS = {
    "interruptions": Caption(
        "Accuracy (above) and tokens spent from there on (below) when a run is interrupted after a share X of its reasoning, by what is "
        "inserted. Bands are intervals over items; X = 1 interrupts when everything has been thought.",
        "How much of the rest of its reasoning the model needs, and what a notice or an update costs it.",
        "That an intervention is bad because it is below another one: stopping, hurrying and updating ask for different things.",
    ),
    "interruptions_leakage": Caption(
        "Share of interrupted runs whose answer is at least so many times as long as that of the uninterrupted run, one line per X.",
        "Whether reasoning that was stopped goes on in the answer.",
        "That every long answer reasons: the ratio counts tokens, it does not read them.",
    ),
    "interruptions_errors": Caption(
        "Runs that were right and that the interruption made wrong, as a share of all runs, by what explains them. A run counts once, "
        "under the first explanation that holds.",
        "Which failure to mend first.",
        "That the explanation is the cause: each is a rule on what the run did (docs/interruptions.md).",
    ),
}
