//! How large the batches of steps may be, so that they take no longer than planned.

use sextant_metadata::PlannedBatch;
use sextant_scaling::Plan;

use crate::Picture;

// === impl Picture ===

impl Picture {
    /// The largest batches that the plans of pipelines have. If the plan for everything else, `here`, also has a
    /// variant answer on a type of devices, it counts on full batches of the variant, so there is no limit.
    pub fn batches(&self, here: &Plan) -> Vec<PlannedBatch> {
        let answered = self.problem.choices.iter().zip(&here.served_rps);
        let answered = answered.filter(|(_, served)| **served > 0.0);
        let answered: Vec<_> = answered
            .map(|(choice, _)| (choice.variant, choice.device))
            .collect();
        let steps = self.staff.iter();
        let bound = steps.filter(|it| !answered.contains(&(it.reserved.variant, it.device)));
        bound
            .map(|it| PlannedBatch {
                variant: it.variant.clone(),
                device_type: self.kinds[it.device.get() as usize].name.clone(),
                max_rows: it.batch,
            })
            .collect()
    }
}
