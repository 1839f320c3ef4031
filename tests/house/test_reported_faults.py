"""Faults that users of comparable software reported, and where the suite shows that the course is immune to each.

The numbers are those of the course's own list of such reports; later lessons add theirs.
"""

import ast
import json
from pathlib import Path

import pytest

ATTENTION, NOTEBOOKS = "tests/attention", "tests/notebooks"
PACKING, GQA, ALIBI = "tests/packing", "tests/gqa", "tests/alibi"
TRAINING, MODELS = "tests/training", "tests/models"
FAULTS = {
    1: (
        "a reference that forgets to swap heads and sequence agrees on square shapes",
        f"{ATTENTION}/test_shapes.py::test_batch_length_heads_and_width_all_different_catch_a_swapped_axis",
    ),
    2: (
        "top-left causal where queries are fewer than keys: decoding sees the first token only",
        f"{ATTENTION}/test_masks.py::test_one_cached_decoding_step_sees_every_key_with_bottom_right",
    ),
    3: (
        "NaN where a row begins with a long run of -inf, or sees nothing",
        f"{ATTENTION}/test_masked_rows.py::test_a_row_may_begin_with_ten_thousand_masked_keys",
        f"{ATTENTION}/test_masked_rows.py::test_a_fully_masked_row_is_zero_with_zero_gradient",
    ),
    4: (
        "a float32 bias with half inputs, a bool mask, key lengths 43, 61, 77",
        f"{ATTENTION}/test_dense_bias.py::test_a_float32_bias_serves_half_precision_inputs",
        f"{ATTENTION}/test_dense_bias.py::test_a_bool_mask_of_every_broadcast_shape",
        f"{ATTENTION}/test_shapes.py::test_key_lengths_that_no_alignment_likes",
    ),
    5: (
        "the gradient of a bias that is broadcast must be summed",
        f"{ATTENTION}/test_dense_bias.py::test_a_float_bias_of_every_broadcast_shape_gets_its_summed_gradient",
    ),
    6: (
        "moving a causal block-diagonal mask lost its causality",
        f"{ATTENTION}/test_xformers_masks.py::test_moving_a_causal_block_diagonal_mask_keeps_it_causal",
    ),
    7: (
        "query, key and value of different dtypes under autocast",
        f"{ATTENTION}/test_dtypes.py::test_dtypes_that_differ_are_made_one_under_autocast",
    ),
    8: (
        "grouped queries without a backward, groups that do not divide, repeat for repeat_interleave",
        f"{ATTENTION}/test_shapes.py::test_grouped_queries_equal_kv_heads_repeated_interleaved",
        f"{ATTENTION}/test_errors.py::test_eight_query_heads_over_three_key_heads_never_broadcast",
        f"{GQA}/test_layer.py::test_query_heads_share_kv_heads_in_runs_and_not_in_turn",
        f"{GQA}/test_layer.py::test_output_and_gradients_are_those_of_heads_computed_one_by_one",
        f"{GQA}/test_layer.py::test_multi_head_weights_repeated_for_a_group_are_the_grouped_layer",
    ),
    9: (
        "block-diagonal masks: batches, segments without keys, lengths that do not sum",
        f"{ATTENTION}/test_properties.py::test_segments_of_any_lengths",
        f"{ATTENTION}/test_errors.py::test_segment_lengths_that_do_not_sum",
        f"{PACKING}/test_packed_attention.py::test_every_row_of_a_batch_is_cut_at_the_same_places",
        f"{PACKING}/test_packed_attention.py::test_a_document_without_keys_is_zero_with_zero_gradient",
    ),
    10: (
        "packed sequences with ALiBi: positions must restart in every segment",
        f"{ALIBI}/test_alibi.py::test_packed_positions_restart_in_every_document",
        f"{ALIBI}/test_alibi.py::test_a_packed_document_comes_out_as_it_does_alone",
    ),
    11: (
        "ALiBi slopes where the head count is no power of two",
        f"{ALIBI}/test_slopes.py::test_slopes_of_12_and_40_heads_are_those_published_in_the_published_order",
    ),
    12: (
        "sequences beyond 32,768 tokens",
        f"{ATTENTION}/test_long_sequences.py::test_a_window_beyond_32768_tokens_forward_and_backward",
    ),
    13: (
        "fp16 without a GradScaler, bf16 on a GPU that lacks it, clipping before unscaling",
        f"{TRAINING}/test_precision.py::test_auto_takes_the_best_that_was_measured_and_says_why",
        f"{TRAINING}/test_precision.py::test_a_step_with_inf_halves_the_scale_and_changes_nothing_else",
        f"{TRAINING}/test_precision.py::test_clipping_sees_the_gradient_without_its_scale",
    ),
    14: (
        "a loss that counts padding or predicts the next document's first token",
        f"{PACKING}/test_batches.py::test_no_target_lies_in_the_next_document",
        f"{PACKING}/test_batches.py::test_the_loss_counts_no_document_end",
        "tests/tiny_gpt/test_model.py::test_targets_of_the_packed_loss_never_cross_a_boundary",
        f"{TRAINING}/test_stream.py::test_a_pass_asks_for_every_target_once_whatever_the_lengths",
    ),
    15: (
        "resuming that repeats or skips data, or forgets the scaler and the optimiser",
        f"{TRAINING}/test_stream.py::test_resuming_after_any_batch_gives_the_batches_of_an_uninterrupted_run",
        f"{TRAINING}/test_resume.py::test_a_run_killed_at_random_steps_goes_on_to_the_bit",
        f"{TRAINING}/test_resume.py::test_half_precision_and_its_loss_scale_go_on_to_the_bit",
        f"{TRAINING}/test_run.py::test_a_loss_scale_that_grows_goes_on_growing_as_it_would_have",
    ),
    16: (
        "left-padded half precision gives NaN; positions taken from the index and not from the mask",
        f"{MODELS}/test_opt.py::test_left_padded_half_precision_has_no_nan_and_the_logits_without_padding",
        f"{MODELS}/test_opt.py::test_a_row_has_the_logits_that_it_has_alone_wherever_its_padding_is",
        f"{MODELS}/test_gpt.py::test_real_tokens_of_a_padded_batch_have_the_logits_and_gradients_they_have_alone",
    ),
    17: (
        "a final norm forgotten, the 512-wide head of OPT-350m, key prefixes that differ between sizes",
        f"{MODELS}/test_opt_peers.py::test_logits_and_gradients_are_those_of_transformers",
        f"{MODELS}/test_load.py::test_every_prefix_of_published_opts_is_understood",
    ),
    19: (
        "tied embeddings stored or loaded twice",
        f"{MODELS}/test_gpt_files.py::test_a_tied_head_is_stored_once_and_stays_tied",
        f"{MODELS}/test_load.py::test_a_tied_head_may_be_stored_once_or_twice_and_is_one_tensor",
    ),
    20: (
        "a crash past the last position",
        f"{MODELS}/test_errors_gpt.py::test_past_the_last_learned_position_stands_a_sentence",
        f"{MODELS}/test_errors_opt.py::test_past_the_last_position_stands_a_sentence_that_says_the_limit",
    ),
    21: (
        "one stop token only, and a newline that never stops since a start token is put before it",
        f"{MODELS}/test_generate_text.py::test_a_newline_stops_though_the_tokenizer_prepends_a_start_token",
        f"{MODELS}/test_generate_text.py::test_of_two_stop_strings_in_a_token_the_first_to_stand_there_ends_the_text",
        f"{MODELS}/test_generate.py::test_stop_ids_may_come_in_any_collection",
    ),
    22: (
        "a local or fine-tuned OPT refused because its name is unknown",
        f"{MODELS}/test_fine_tuned.py::test_a_fine_tuned_opt_of_any_name_shape_and_size_is_loaded",
    ),
    23: (
        "a peak of memory that is printed as 0",
        f"{TRAINING}/test_progress.py::test_a_peak_that_has_passed_is_remembered",
        f"{TRAINING}/test_opt.py::test_the_peak_is_predicted_within_a_tenth",
    ),
    27: (
        "numbers that differ between machines, warnings with a process id, pip logs in outputs",
        f"{NOTEBOOKS}/test_rules.py::test_a_broken_lesson_is_told_which_rule",
        f"{NOTEBOOKS}/test_normalise.py::test_a_warning_on_stderr_stays_so_that_someone_mends_it",
    ),
    28: (
        "a solution that differs from the chapter, copies that drift",
        f"{NOTEBOOKS}/test_solve.py::test_the_solved_notebook_holds_the_solutions_under_the_stubs_names",
        "tests/house/test_reported_faults.py::test_no_lesson_keeps_a_copy_of_what_the_library_has",
    ),
    29: (
        "a check that prints a comparison and asserts nothing",
        "tests/house/test_reported_faults.py::test_every_test_asserts_something",
    ),
    30: (
        "widget state in a saved notebook that a site cannot render",
        f"{NOTEBOOKS}/test_normalise.py::test_a_widget_leaves_its_static_picture_and_no_model",
    ),
}
# Functions that assert on behalf of their caller; simplefilter("error") makes a warning fail the test.
ASSERTING = (
    "assert",
    "check",
    "explains",
    "refuses",
    "accepts",
    "expect",
    "raises",
    "warns",
    "agree",
    "fail",
    "simplefilter",
)


@pytest.mark.parametrize("number", FAULTS)
def test_each_reported_fault_has_a_test(number: int, repository: Path) -> None:
    for place in FAULTS[number][1:]:
        file, name = place.split("::")
        assert name in functions(repository / file), f"{place} is gone: {FAULTS[number][0]}"


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def called_name(call: ast.Call) -> str:
    target = call.func
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def asserts(function: ast.FunctionDef, among: dict[str, ast.FunctionDef], seen: frozenset[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = called_name(node)
            if name.lstrip("_").startswith(ASSERTING):
                return True
            if name in among and name not in seen and asserts(among[name], among, seen | {name}):
                return True
    return False


def test_every_test_asserts_something(repository: Path) -> None:
    silent = []
    for path in sorted((repository / "tests").rglob("test_*.py")):
        known = functions(path)
        for name, function in known.items():
            if name.startswith("test_") and not asserts(function, known, frozenset({name})):
                silent.append(f"{path.relative_to(repository)}::{name}")
    assert not silent


def test_a_test_that_only_prints_is_seen_as_asserting_nothing() -> None:
    tree = ast.parse("def test_prints():\n    print(1 == 1)\ndef test_asserts():\n    assert 1 == 1\n")
    prints, holds = tree.body
    assert isinstance(prints, ast.FunctionDef) and not asserts(prints, {}, frozenset())
    assert isinstance(holds, ast.FunctionDef) and asserts(holds, {}, frozenset())


def test_no_lesson_keeps_a_copy_of_what_the_library_has(repository: Path) -> None:
    """A notebook's own functions are exercises or first naive versions, under names of their own."""
    public = set()
    for path in (repository / "course_lib").rglob("*.py"):
        if "lessons" not in path.parts and "classroom" not in path.parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            public |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in public if not name.startswith("_") and name not in ("main", "run", "step")}
    notebooks = sorted((repository / "notebooks").glob("*.ipynb"))
    assert notebooks
    copies = []
    for path in notebooks:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and "%pip" not in source:
                for node in ast.parse(source).body:
                    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in public:
                        copies.append(f"{path.name}: {node.name}")
    assert not copies
