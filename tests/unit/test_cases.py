"""Where each case that others met has its test; the test of every case named here exists.

The numbers are those of the project's list of small inputs with right values. C13 and C36 are about
ONNX files and come with that part.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OPS, PASSES, ABI = "unit/npuc/ops", "unit/npuc/passes", "unit/npuabi"
CASES: dict[str, tuple[str, str]] = {
    "C01": (f"{OPS}/test_float_values.py", "test_c01_stride_2_same_pads_on_the_right_side"),
    "C02": (f"{ABI}/test_fixedpoint.py",
            "test_each_mode_gives_its_own_value_on_the_known_disagreements"),
    "C03": (f"{OPS}/test_float_values.py", "test_c03_average_pool_divides_by_the_right_count"),
    "C04": ("e2e/test_cases_text.py", "test_c04_softmax_without_an_axis_runs_along_the_last"),
    "C05": (f"{OPS}/test_integer_values.py", "test_c05_a_sure_winner_saturates_at_127"),
    "C06": (f"{PASSES}/test_fold_batch_norm.py", "test_nothing_is_folded_across"),
    "C07": (f"{PASSES}/test_weights.py",
            "test_a_bias_that_int32_cannot_hold_raises_its_channels_scale"),
    "C08": (f"{OPS}/test_float_values.py", "test_c08_dilation_counts_in_same_padding"),
    "C09": (f"{OPS}/test_float_values.py",
            "test_c09_depthwise_output_channel_is_input_channel_times_multiplier_plus_index"),
    "C10": (f"{OPS}/test_float_values.py", "test_c10_clip_takes_absent_bounds_and_lets_max_win"),
    "C11": ("e2e/test_depth.py", "test_a_ladder_of_two_thousand_rungs_compiles"),
    "C12": ("unit/npuc/frontend/test_text.py",
            "test_two_ops_that_write_one_value_are_an_error_that_names_it"),
    "C14": (f"{PASSES}/test_fold_batch_norm.py",
            "test_weights_shared_by_two_convolutions_are_folded_once_each"),
    "C15": (f"{ABI}/test_wire.py",
            "test_building_what_was_parsed_gives_the_same_bytes_for_ten_thousand_records"),
    "C16": ("unit/npufw/test_update.py",
            "test_c16_a_cut_at_any_byte_of_a_header_boots_old_or_new"),
    "C17": (f"{ABI}/test_lengths.py",
            "test_c17_every_bit_of_every_length_is_bounded_before_it_is_used"),
    "C18": ("unit/npufw/test_drift.py",
            "test_only_the_cells_of_the_version_table_load_and_those_run_right"),
    "C19": ("unit/npufw/test_update.py",
            "test_c19_a_cut_in_a_rollback_is_done_or_not_and_stays_so"),
    "C20": ("unit/npufw/test_device_life.py",
            "test_c20_ten_thousand_lives_leave_pool_and_host_as_they_were"),
    "C21": ("e2e/test_cases_text.py",
            "test_c21_nearest_resize_breaks_ties_as_it_is_told"),
    "C22": ("e2e/test_cases_text.py",
            "test_c22_linear_resize_on_codes_is_within_one_step_of_the_real_one"),
    "C23": (f"{OPS}/test_float_values.py",
            "test_c23_a_window_that_starts_in_the_end_padding_is_dropped"),
    "C24": (f"{OPS}/test_integer_values.py", "test_c24_int32_holds_65793_extreme_products"),
    "C25": ("e2e/test_cases_text.py",
            "test_c25_scales_follow_their_axis_when_weights_are_transposed"),
    "C26": (f"{ABI}/test_fixedpoint.py",
            "test_a_scale_of_about_a_255th_keeps_its_float64_multiplier"),
    "C27": ("peers/test_litert.py",
            "test_c27_a_convolution_of_80_by_80_by_8_equals_the_reference_kernels"),
    "C28": (f"{OPS}/test_integer_values.py", "test_c28_integer_softmax_runs_over_channels"),
    "C29": (f"{OPS}/test_integer_values.py", "test_c29_add_rescales_both_operands"),
    "C30": (f"{OPS}/test_refusals.py", "test_c30_an_empty_tensor_gives_an_empty_result"),
    "C31": ("e2e/test_poison.py", "test_poison_in_dead_bytes_changes_no_output"),
    "C32": (f"{OPS}/test_float_values.py", "test_c32_same_upper_pads_the_end"),
    "C33": (f"{PASSES}/test_weights.py",
            "test_a_depthwise_channel_a_thousand_times_smaller_is_noted"),
    "C34": ("e2e/test_cases_text.py", "test_c34_slopes_below_zero_are_kept"),
    "C35": ("unit/npuc/frontend/test_constants.py", "test_links_that_leave_the_folder_are_refused"),
    "C37": ("unit/npurt/test_service.py",
            "test_inputs_that_do_not_fit_are_refused_before_they_wait"),
    "C38": ("e2e/test_npurt_threads.py",
            "test_thirty_models_and_one_long_job_load_the_cores_evenly"),
    "C39": ("unit/npurt/test_soak.py", "test_every_kind_of_trouble_is_met_and_survived"),
    "C40": ("unit/npufw/test_allocator.py",
            "test_c40_freeing_all_in_any_order_gives_the_first_blocks_back"),
    "C41": ("unit/npuc/frontend/test_text.py", "test_values_and_ops_have_names_of_their_own"),
    "C42": ("e2e/test_cases_text.py", "test_c42_float16_is_rounded_and_not_cut"),
    "C43": ("e2e/test_cases_text.py",
            "test_c43_sub_keeps_its_order_behind_a_folded_batch_norm"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_its_test(case: str) -> None:
    file, name = CASES[case]
    tree = ast.parse((TESTS / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
