//! The actions of a worker, and how well their durations were predicted.

use std::collections::BTreeMap;

use sextant_rpc::{ActionKind, ActionStats, Mispredictions, WorkerStats};

use crate::grpc::proto;

/// Codes of refusals; other codes are counted as `failed`.
const CODES: [&str; 13] = [
    "too_early",
    "too_late",
    "not_loaded",
    "no_memory",
    "weights_changed",
    "bad_shape",
    "inputs_missing",
    "lost",
    "disconnected",
    "shutting_down",
    "unknown",
    "rejected",
    "failed",
];

pub(super) fn pack(mut stats: WorkerStats) -> proto::WorkerStats {
    let mut take = |kind| stats.actions.remove(&kind).map(pack_action);
    proto::WorkerStats {
        infer: take(ActionKind::Infer),
        load: take(ActionKind::Load),
        unload: take(ActionKind::Unload),
    }
}

pub(super) fn unpack(stats: proto::WorkerStats) -> WorkerStats {
    let actions = [
        (ActionKind::Infer, stats.infer),
        (ActionKind::Load, stats.load),
        (ActionKind::Unload, stats.unload),
    ];
    let actions = actions.into_iter();
    WorkerStats {
        actions: actions
            .filter_map(|(kind, stats)| Some((kind, unpack_action(stats?))))
            .collect(),
    }
}

fn pack_action(stats: ActionStats) -> proto::ActionStats {
    let failed = stats.failed.into_iter();
    let failed = failed.map(|(code, count)| proto::CodeCount {
        code: code.to_owned(),
        count,
    });
    proto::ActionStats {
        succeeded: stats.succeeded,
        failed: failed.collect(),
        under_predicted: Some(pack_errors(stats.under_predicted)),
        over_predicted: Some(pack_errors(stats.over_predicted)),
        late_completion: Some(pack_errors(stats.late_completion)),
    }
}

fn unpack_action(stats: proto::ActionStats) -> ActionStats {
    let mut failed = BTreeMap::<_, u64>::new();
    for of in stats.failed {
        let known = CODES.into_iter().find(|known| *known == of.code);
        let count = failed.entry(known.unwrap_or("failed")).or_default();
        *count = count.saturating_add(of.count);
    }
    let errors = |of: Option<proto::Mispredictions>| of.map(unpack_errors).unwrap_or_default();
    ActionStats {
        succeeded: stats.succeeded,
        failed,
        under_predicted: errors(stats.under_predicted),
        over_predicted: errors(stats.over_predicted),
        late_completion: errors(stats.late_completion),
    }
}

fn pack_errors(of: Mispredictions) -> proto::Mispredictions {
    proto::Mispredictions {
        count: of.count,
        p50_us: of.p50_us,
        p99_us: of.p99_us,
        p999_us: of.p999_us,
        max_us: of.max_us,
    }
}

fn unpack_errors(of: proto::Mispredictions) -> Mispredictions {
    Mispredictions {
        count: of.count,
        p50_us: of.p50_us,
        p99_us: of.p99_us,
        p999_us: of.p999_us,
        max_us: of.max_us,
    }
}
