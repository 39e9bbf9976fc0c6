"""Every rule of the protocol that the model shows to be needed has tests that notice if it is left out.

The stories are named, so that whoever changes a rule finds them; this test only holds the table to the tests there are.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

CHECK_BACK = "faults/test_check_back_stories.py"
CLASSIC = "faults/test_classic_seckill_stories.py"
LEADER = "faults/test_leader_stories.py"
LOSS = "faults/test_redis_loss_stories.py"
LOSS_RULES = "faults/test_redis_loss_rules.py"
MONEY = "faults/test_money_stories.py"
ORDERS = "contract/test_order_store_contract.py"
SALES = "contract/test_sale_store_contract.py"
STOCK = "contract/test_stock_contract.py"
WHICH = "integration/test_which_redis.py"

GUARDS: dict[str, tuple[tuple[str, str], ...]] = {
    "fence": (
        (CHECK_BACK, "test_a_check_back_before_the_deduct_fences_it_and_the_same_key_wins_later"),
        (LOSS, "test_a_fenced_batch_stays_without_effect_through_a_loss"),
        (STOCK, "test_late_deduct_after_a_fence_changes_nothing"),
    ),
    "timeout-unknown": (
        (LOSS, "test_a_retry_told_queued_keeps_its_word_though_nobody_committed"),
        (CHECK_BACK, "test_a_checker_that_cannot_see_the_truth_never_rolls_back"),
    ),
    "lost-unknown": ((LOSS, "test_a_retry_told_queued_keeps_its_word_though_nobody_committed"),),
    "ack-after-commit": ((LOSS_RULES, "test_a_consumer_killed_before_its_commit_has_not_acked"),),
    "row-lock-epoch": (
        (LOSS_RULES, "test_a_consumer_paused_through_a_loss_starts_over"),
        (ORDERS, "test_epoch_change_in_mid_flight_makes_the_transaction_start_over"),
        (ORDERS, "test_the_authority_cannot_change_while_an_order_transaction_runs"),
    ),
    "sql-first": (
        (LOSS_RULES, "test_a_cancel_that_sql_did_not_take_leaves_redis_alone"),
        (CHECK_BACK, "test_a_second_check_back_agrees_with_the_first_and_a_late_commit_is_no_second_order"),
    ),
    "one-snapshot": ((SALES, "test_a_snapshot_sees_an_order_transaction_whole_or_not_at_all"),),
    "loader-ids": (
        (LEADER, "test_a_load_that_meets_another_server_midway_is_refused_and_begun_anew"),
        (STOCK, "test_a_load_that_meets_another_server_writes_nothing"),
    ),
    "meta-last": (
        (STOCK, "test_a_slot_without_its_stamp_is_not_for_sale"),
        ("faults/test_killed_processes.py", "test_a_loader_killed_before_the_stamp_leaves_nothing_that_sells"),
    ),
    "load-after-stamp": (
        (STOCK, "test_load_after_the_stamp_writes_nothing"),
        (LEADER, "test_a_loader_that_slept_through_its_lease_loads_nothing_into_its_successors_epoch"),
    ),
    "new-epoch-per-attempt": (
        (LEADER, "test_a_load_that_meets_another_server_midway_is_refused_and_begun_anew"),
        (SALES, "test_the_epoch_grows_as_the_table_says"),
    ),
    "wait-in-loading": ((LOSS_RULES, "test_order_messages_wait_while_redis_is_loaded"),),
    "server-id": (
        (WHICH, "test_a_restarted_server_is_lost"),
        (LOSS, "test_a_restart_in_mid_sale_loses_nothing_and_sells_nothing_twice"),
    ),
    "replication-id": (
        (WHICH, "test_a_resynced_replica_that_is_promoted_again_is_lost"),
        (WHICH, "test_a_promoted_replica_is_lost"),
    ),
    "end-guard": (
        (STOCK, "test_release_twice_gives_back_once"),
        (MONEY, "test_whoever_ends_an_unpaid_order_and_however_often_its_unit_comes_back_once"),
    ),
    "decision-row": ((LOSS_RULES, "test_a_loser_whose_epoch_ended_before_his_decision_was_recorded_hears_503"),),
    "decision-skip": (
        (LOSS_RULES, "test_a_loser_who_heard_409_stays_one_though_sql_could_serve_him_after_the_loss"),
        (LOSS_RULES, "test_who_misused_a_key_in_a_batch_is_no_candidate_of_it_after_a_loss"),
    ),
    "ended-before-row": ((LOSS, "test_an_older_message_that_comes_late_finds_a_unit_or_is_told_so"),),
    "ending-restarts": ((LOSS_RULES, "test_a_cancel_that_straddles_a_loss_starts_over"),),
    "sweep": ((LEADER, "test_a_decided_batch_whose_half_message_was_discarded_is_swept_into_an_order"),),
    "discarded-loop": ((LEADER, "test_a_discarded_half_message_of_an_older_epoch_is_decided_from_its_body"),),
    "deadline": (
        (LOSS, "test_an_unknown_id_is_in_doubt_until_the_deadline_and_then_not_found"),
        (STOCK, "test_an_older_candidate_past_its_deadline_is_ended_here_first"),
    ),
    "deadline-from-epoch-end": ((LOSS, "test_a_queued_reservation_has_its_deadline_from_the_end_of_its_epoch"),),
    "final-409": ((LOSS, "test_a_refusal_is_not_final_while_an_older_candidate_may_win"),),
    "losers-recorded": ((STOCK, "test_a_batch_of_losers_only_is_decided_once_too"),),
    "limit-redis": (
        (CLASSIC, "test_one_buyer_with_a_thousand_requests_gets_one_unit"),
        (LOSS, "test_a_buyer_with_two_keys_around_a_loss_has_one_unit"),
    ),
    "limit-sql": (
        (ORDERS, "test_a_buyers_counter_stays_between_nothing_and_the_limit"),
        (LOSS, "test_a_loss_is_bridged_by_sql_where_the_sale_says_so"),
    ),
    "owed-epoch": (
        (LOSS_RULES, "test_a_release_owed_in_an_epoch_that_ended_is_not_given_again"),
        (ORDERS, "test_release_owed_in_an_older_epoch_is_not_cleared_by_a_newer_ones_release"),
    ),
    "pay-vs-cancel": (
        (MONEY, "test_a_payment_and_a_time_out_in_the_same_moment_end_in_one_of_the_two"),
        (ORDERS, "test_pay_and_cancel_race_has_one_winner"),
    ),
    "refund-once": (
        (MONEY, "test_money_that_comes_ten_minutes_after_the_cancel_is_refunded_once_and_moves_no_stock"),
        (ORDERS, "test_a_payment_has_one_refund_however_often_it_is_asked_for"),
    ),
    "adjustment-order": ((LOSS_RULES, "test_an_adjustment_cut_off_half_way_counts_once"),),
    "write-off": (
        (CLASSIC, "test_what_sql_does_not_have_is_rejected_with_its_reason_and_written_off"),
        (STOCK, "test_written_off_units_are_not_sold_again"),
    ),
    "sticky-lost": ((LEADER, "test_a_loss_that_was_reported_once_stays_one"),),
    "misrouted": ((LEADER, "test_a_report_of_a_misrouted_process_changes_nothing"),),
}


@pytest.mark.parametrize("rule", GUARDS)
def test_a_rule_has_the_tests_that_the_table_names(rule: str) -> None:
    for path, name in GUARDS[rule]:
        assert name in _tests_of(TESTS / path), f"{rule}: {path} has no {name}"


def _tests_of(path: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions)}
