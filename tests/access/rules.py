"""Which role each address takes, method by method: the table that a new address is added to.

Least roles: `viewer` reads, `editor` changes things and starts work, `admin` manages members,
tokens, limits and what leaves the installation; `operator` is no role of a member, but of the
installation.
"""

from __future__ import annotations

OPEN = {
    *("web:home", "web:theme"),
    *("api:openapi", "api:docs", "api:nothing", "api:me", "api:projects"),
    *("api:imports", "api:import", "api:import_cancel", "api:import_events"),
}
"""Of no project; tested in `tests/web/test_access.py` and `tests/api/test_ground.py`."""
NO_OBJECT = {"api:retention_rule", "web:environment_create", "web:rollout_export", "web:view_save"}
"""Their arguments name a kind or a form, and nothing that another project could have."""


def _rules(**roles: str) -> dict[str, str]:
    return {name: role for role, names in roles.items() for name in names.split()}


RULES = {
    "GET": _rules(
        viewer="""
            api:alignment api:alignment_events api:alignments api:annotations api:attack
            api:attack_events api:attacks api:calibration api:calibration_bar api:checkpoint
            api:checkpoints api:climb api:climb_alarms api:climb_events api:climbs api:comparison
            api:criterion_policy api:environment api:environment_check
            api:environment_check_events api:environment_checks api:environment_tasks
            api:environment_version api:environment_versions api:environments api:events api:gate
            api:gate_events api:gates api:golden_case api:golden_cases api:harness api:harnesses
            api:imported api:judge_limits api:limits api:look api:look_events api:member
            api:members api:model api:models api:project api:proposal_answer api:registration
            api:registration_events api:registrations api:regrade api:regrade_events
            api:regrade_scores api:regrades api:release api:releases api:retention_look
            api:retention_look_events api:retention_looks api:retention_marked api:retention_rule
            api:retention_rules api:review_item api:review_item_comments api:review_items
            api:review_queue api:review_queues api:rollout api:rollout_events api:rollout_trace
            api:rubric api:rubric_backtests api:rubric_draft api:rubric_version
            api:rubric_versions api:rubrics api:run api:run_events api:run_rollouts
            api:run_rollouts_jsonl api:runs api:saved_view api:saved_views api:search
            api:search_budget api:search_events api:searches api:storage_limits api:suggestion
            api:suggestion_events api:suggestions api:sweep api:sweeps api:token api:tokens
            api:training api:training_alarms api:training_curves api:training_events
            api:training_limits api:trainings web:calibration_compare web:certificate
            web:certificate_export web:checkpoint_download web:climb web:climb_report web:climbs
            web:compare web:compare_rollouts web:environment web:environment_checks
            web:environment_compare web:environment_curriculum web:environment_network
            web:environment_try web:environments web:event_search web:gate web:gates web:harness
            web:harness_compare web:harness_diff web:harness_export web:harnesses web:imports
            web:limits web:members web:models web:overview web:registration web:regrade
            web:releases web:retention web:review web:review_item web:review_queue web:rollout
            web:rollout_atif web:rollout_cards web:rollout_event web:rollout_export
            web:rollout_find web:rollout_index web:rollout_jsonl web:rollout_ledger
            web:rollout_media web:rollout_outline web:rollout_peek web:rollout_training_trace
            web:rollout_words web:rollouts web:rollouts_compare web:rubric web:rubric_backtests
            web:rubric_calibration web:rubric_export web:rubric_golden web:rubric_json
            web:rubric_preview web:rubric_redteam web:rubric_versions web:rubrics web:run web:runs
            web:search web:search_certificate web:search_proposal web:search_question web:searches
            web:settings web:status web:task web:training web:training_curves
            web:training_curves_data web:training_group web:training_job web:training_step
            web:training_sweep
        """,
        editor="""
            api:draft_task api:draft_tasks api:draft_upload api:draft_uploads
            api:environment_draft api:tryout api:tryout_events api:tryouts web:climb_start
            web:draft web:draft_publish web:draft_settings web:draft_task web:draft_task_new
            web:draft_upload web:environment_create web:environment_export web:environment_new
            web:harness_edit web:harness_import web:review_new web:rollouts_regrade
            web:rubric_edit web:rubric_new web:rubric_publish web:rubric_suggestion
            web:run_regrade web:run_start web:search_forecast web:search_new web:training_new
            web:tryout web:upload_errors web:upload_preview
        """,
        admin="""
            api:audit api:deliveries api:delivery api:export api:export_events api:export_file
            api:exports api:invitation api:invitations api:webhook api:webhooks web:archives
            web:audit web:audit_file web:export_file web:webhook web:webhooks
        """,
        operator="""
            web:system
        """,
    ),
    "POST": _rules(
        viewer="""
            api:saved_views web:view_remove web:view_save
        """,
        editor="""
            api:alignment_cancel api:alignment_take api:alignments api:attack_cancel
            api:attack_golden api:attacks api:calibration_labels api:calibration_queue
            api:checkpoint_merge api:checkpoint_promote api:climb_alarm_acknowledge
            api:climb_cancel api:climb_overrule api:climb_pause api:climb_resume api:climbs
            api:draft_split api:draft_tasks_change api:draft_upload_apply api:draft_uploads
            api:environment_check_cancel api:environment_checks api:environment_connections
            api:environment_draft api:environment_draft_publish api:environment_draft_undo
            api:environment_folders api:environments api:gate_cancel api:gates api:golden_cases
            api:golden_try api:harnesses api:ingest api:look api:models api:otlp_traces
            api:proposal_answer api:registration_cancel api:registrations api:regrade_cancel
            api:regrade_resume api:regrade_retry api:regrades api:release_roll_back api:releases
            api:retention_marked api:review_item_comments api:review_item_move
            api:review_item_requeue api:review_item_reserve api:review_item_skip api:review_items
            api:review_next api:review_queues api:rubric_backtests api:rubric_draft
            api:rubric_preview api:rubric_publish api:rubrics api:run_cancel api:run_retry
            api:runs api:search_cancel api:search_decision api:search_nudges api:search_pause
            api:search_resume api:searches api:suggestion_cancel api:suggestion_settle
            api:suggestions api:sweep_cancel api:sweeps api:tokens api:trace_files
            api:training_alarm_acknowledge api:training_cancel api:training_pause
            api:training_resume api:trainings api:tryout_close api:tryout_reference
            api:tryout_reset api:tryout_restart api:tryout_rubric api:tryout_state
            api:tryout_steps api:tryout_undo api:version_tryouts api:written_environments
            web:alarm_acknowledge web:alignment_cancel web:alignment_start web:alignment_take
            web:backtest_start web:calibration_bar web:calibration_enqueue web:calibration_label
            web:calibration_policy web:check_cancel web:check_start web:checkpoint_merge
            web:checkpoint_promote web:climb_action web:climb_overrule web:climb_start
            web:draft_discard web:draft_publish web:draft_settings web:draft_split web:draft_start
            web:draft_task web:draft_task_new web:draft_tasks_change web:draft_undo
            web:draft_upload web:environment_create web:environment_delete
            web:environment_describe web:environment_new web:environment_try web:environments
            web:gate_cancel web:golden_add web:golden_remove web:harness_edit web:harness_import
            web:harness_label web:harness_release web:imports web:ledger_look web:model_bundled
            web:model_change web:models web:redteam_cancel web:redteam_golden web:redteam_start
            web:registration_cancel web:regrade_cancel web:regrade_resume web:regrade_start
            web:release_roll_back web:retention_keep web:review_add web:review_comment
            web:review_correct web:review_items_change web:review_keep web:review_new
            web:review_next web:review_requeue web:review_reserve web:review_save web:review_skip
            web:rollouts_regrade web:rubric_draft_discard web:rubric_draft_start web:rubric_golden
            web:rubric_json web:rubric_new web:rubric_preview web:rubric_publish web:rubric_save
            web:rubric_suggest web:rubric_suggestion web:run_cancel web:run_regrade web:run_start
            web:search_action web:search_budget web:search_new web:search_nudge
            web:search_proposal web:settings web:training_action web:training_alarm
            web:training_new web:training_priority web:training_sweep_cancel web:tryout_ask
            web:upload_preview
        """,
        admin="""
            api:delivery_replay api:export_cancel api:exports api:invitations api:members
            api:retention_looks api:webhook_ping api:webhooks web:delivery_replay web:export_action
            web:export_start web:invitation_revoke web:judge_limits web:limits web:member_remove
            web:member_role web:members web:project_import web:retention_let_go web:retention_look
            web:retention_rule web:review_queue_delete web:token_revoke web:training_quota
            web:webhook_change web:webhooks
        """,
    ),
    "PUT": _rules(
        editor="""
            api:calibration_bar api:criterion_policy api:draft_task api:model_bundled
            api:review_item_correction api:review_item_reviewers api:review_marks
            api:rollout_annotations api:rubric_draft api:search_budget api:training_priority
        """,
        admin="""
            api:judge_limits api:limits api:retention_rule api:storage_limits api:training_limits
        """,
    ),
    "PATCH": _rules(
        editor="""
            api:environment api:environment_draft api:harness api:model
        """,
        admin="""
            api:project api:webhook
        """,
    ),
    "DELETE": _rules(
        viewer="""
            api:saved_view
        """,
        editor="""
            api:draft_task api:draft_upload api:environment api:environment_draft api:golden_case
            api:look api:model api:review_item api:rubric_draft
        """,
        admin="""
            api:export api:invitation api:member api:retention_marked api:retention_rule
            api:review_queue api:token api:webhook
        """,
    ),
}
