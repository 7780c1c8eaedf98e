use proptest::prelude::*;

use super::*;
use crate::learner::advantage::discounted_returns;

/// Owned arrays of a batch, `[T, B]`; `bootstrap` is `[B]`.
#[derive(Debug, Clone)]
struct Batch {
    log_rhos: Vec<f64>,
    rewards: Vec<f64>,
    values: Vec<f64>,
    discounts: Vec<f64>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    final_values: Vec<f64>,
    bootstrap: Vec<f64>,
}

impl Batch {
    fn input(&self) -> VtraceInput<'_, f64> {
        VtraceInput {
            log_rhos: &self.log_rhos,
            rewards: &self.rewards,
            values: &self.values,
            discounts: &self.discounts,
        }
    }

    fn boundaries(&self) -> Boundaries<'_, f64> {
        Boundaries {
            terminated: &self.terminated,
            truncated: &self.truncated,
            final_values: &self.final_values,
            bootstrap: &self.bootstrap,
        }
    }

    fn vtrace(&self, config: &VtraceConfig) -> VtraceTargets<f64> {
        vtrace(config, &self.input(), &self.boundaries()).unwrap()
    }

    /// Rows `from..to`, followed by `bootstrap`.
    fn rows(&self, from: usize, to: usize, bootstrap: &[f64]) -> Self {
        let columns = self.bootstrap.len();
        let (from, to) = (from * columns, to * columns);
        Self {
            log_rhos: self.log_rhos[from..to].to_vec(),
            rewards: self.rewards[from..to].to_vec(),
            values: self.values[from..to].to_vec(),
            discounts: self.discounts[from..to].to_vec(),
            terminated: self.terminated[from..to].to_vec(),
            truncated: self.truncated[from..to].to_vec(),
            final_values: self.final_values[from..to].to_vec(),
            bootstrap: bootstrap.to_vec(),
        }
    }

    fn column(&self, column: usize) -> Self {
        let columns = self.bootstrap.len();
        let pick = |array: &[f64]| array.iter().copied().skip(column).step_by(columns).collect();
        let pick_flags = |array: &[bool]| array.iter().copied().skip(column).step_by(columns).collect();
        Self {
            log_rhos: pick(&self.log_rhos),
            rewards: pick(&self.rewards),
            values: pick(&self.values),
            discounts: pick(&self.discounts),
            terminated: pick_flags(&self.terminated),
            truncated: pick_flags(&self.truncated),
            final_values: pick(&self.final_values),
            bootstrap: vec![self.bootstrap[column]],
        }
    }
}

prop_compose! {
    /// Up to eight steps of up to four columns, in which about every third step ends an episode.
    fn batches()(steps in 1_usize..9, columns in 1_usize..5)(
        log_rhos in prop::collection::vec(-1.5..1.5, steps * columns),
        rewards in prop::collection::vec(-2.0..2.0, steps * columns),
        values in prop::collection::vec(-3.0..3.0, steps * columns),
        discounts in prop::collection::vec(0.5..1.0, steps * columns),
        terminated in prop::collection::vec(prop::bool::weighted(0.15), steps * columns),
        truncated in prop::collection::vec(prop::bool::weighted(0.2), steps * columns),
        final_values in prop::collection::vec(-3.0..3.0, steps * columns),
        bootstrap in prop::collection::vec(1.0..3.0, columns),
    ) -> Batch {
        Batch { log_rhos, rewards, values, discounts, terminated, truncated, final_values, bootstrap }
    }
}

prop_compose! {
    fn configs()(c_bar in 0.3..2.0, above in 0.0..2.0, pg_rho_bar in 0.3..3.0, lambda in 0.0..=1.0) -> VtraceConfig {
        VtraceConfig { rho_bar: c_bar + above, c_bar, pg_rho_bar, lambda }
    }
}

/// The targets as the explicit sum over all later temporal differences, written from the definition and not from
/// the recursion.
fn explicit_sum(config: &VtraceConfig, batch: &Batch) -> VtraceTargets<f64> {
    let columns = batch.bootstrap.len();
    let entries = batch.values.len();
    let ratio = |i: usize| batch.log_rhos[i].exp();
    let discount = |i: usize| if batch.terminated[i] { 0.0 } else { batch.discounts[i] };
    let ends = |i: usize| batch.terminated[i] || batch.truncated[i];
    let successor = |i: usize| match (batch.terminated[i], batch.truncated[i]) {
        (true, _) => 0.0,
        (false, true) => batch.final_values[i],
        (false, false) if i + columns >= entries => batch.bootstrap[i % columns],
        (false, false) => batch.values[i + columns],
    };
    let delta = |i: usize| {
        config.rho_bar.min(ratio(i)) * (batch.rewards[i] + discount(i) * successor(i) - batch.values[i])
    };
    let vs: Vec<f64> = (0..entries)
        .map(|start| {
            let later = (start..entries).step_by(columns);
            let weighted = later.map(|k| {
                let trace: f64 =
                    (start..k)
                        .step_by(columns)
                        .map(|j| {
                            if ends(j) {
                                0.0
                            } else {
                                discount(j) * config.lambda * config.c_bar.min(ratio(j))
                            }
                        })
                        .product();
                trace * delta(k)
            });
            batch.values[start] + weighted.sum::<f64>()
        })
        .collect();
    let pg_advantages = (0..entries)
        .map(|i| {
            let target = if ends(i) || i + columns >= entries { successor(i) } else { vs[i + columns] };
            config.pg_rho_bar.min(ratio(i)) * (batch.rewards[i] + discount(i) * target - batch.values[i])
        })
        .collect();
    VtraceTargets { vs, pg_advantages }
}

fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (index, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance, "entry {index}: {a} is not {b}\n{got:?}\n{expected:?}");
    }
}

proptest! {
    #[test]
    fn the_scan_equals_the_explicit_sum(batch in batches(), config in configs()) {
        let (scan, sum) = (batch.vtrace(&config), explicit_sum(&config, &batch));
        assert_close(&scan.vs, &sum.vs, 1e-10);
        assert_close(&scan.pg_advantages, &sum.pg_advantages, 1e-10);
    }

    #[test]
    fn on_policy_targets_are_the_discounted_returns(batch in batches()) {
        let on_policy = Batch { log_rhos: vec![0.0; batch.values.len()], ..batch };
        let returns =
            discounted_returns(&on_policy.rewards, &on_policy.discounts, &on_policy.boundaries()).unwrap();
        let targets = on_policy.vtrace(&VtraceConfig::default());
        assert_close(&targets.vs, &returns, 1e-10);
        let advantages: Vec<f64> = returns.iter().zip(&on_policy.values).map(|(r, v)| r - v).collect();
        assert_close(&targets.pg_advantages, &advantages, 1e-10);
    }

    #[test]
    fn a_batch_with_a_boundary_equals_its_parts_run_apart(
        mut batch in batches(),
        config in configs(),
        cut in any::<prop::sample::Index>(),
    ) {
        let columns = batch.bootstrap.len();
        let steps = batch.values.len() / columns;
        let cut = cut.index(steps);
        let row = cut * columns..(cut + 1) * columns;
        batch.terminated[row.clone()].fill(false);
        batch.truncated[row.clone()].fill(true);
        let whole = batch.vtrace(&config);
        // Run apart, the cut-off episodes go on into a bootstrap that has their final observations' values.
        let mut first = batch.rows(0, cut + 1, &batch.final_values[row.clone()]);
        first.truncated[row].fill(false);
        let mut parts = first.vtrace(&config);
        let rest = batch.rows(cut + 1, steps, &batch.bootstrap).vtrace(&config);
        parts.vs.extend(rest.vs);
        parts.pg_advantages.extend(rest.pg_advantages);
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn a_column_does_not_depend_on_its_neighbours(batch in batches(), config in configs()) {
        let columns = batch.bootstrap.len();
        let together = batch.vtrace(&config);
        for column in 0..columns {
            let alone = batch.column(column).vtrace(&config);
            let picked: Vec<f64> = together.vs.iter().copied().skip(column).step_by(columns).collect();
            prop_assert_eq!(alone.vs, picked);
        }
    }

    #[test]
    fn values_that_stand_for_nothing_are_never_read(batch in batches(), config in configs()) {
        let mut spoilt = batch.clone();
        for index in 0..spoilt.values.len() {
            if spoilt.terminated[index] || !spoilt.truncated[index] {
                spoilt.final_values[index] = f64::NAN;
            }
        }
        prop_assert_eq!(batch.vtrace(&config), spoilt.vtrace(&config));
    }
}

/// Four steps of one column: gamma 0.9, log rho −1, 0, 0.5, 1, rewards 1 to 4, values 0.5 to 2, bootstrap 2.5.
fn anchor() -> Batch {
    Batch {
        log_rhos: vec![-1.0, 0.0, 0.5, 1.0],
        rewards: vec![1.0, 2.0, 3.0, 4.0],
        values: vec![0.5, 1.0, 1.5, 2.0],
        discounts: vec![0.9; 4],
        terminated: vec![false; 4],
        truncated: vec![false; 4],
        final_values: vec![777.0; 4],
        bootstrap: vec![2.5],
    }
}

#[test]
fn without_ends_the_published_figures_come_out() {
    let targets = anchor().vtrace(&VtraceConfig::default());
    assert_close(&targets.vs, &[3.91622, 9.7625, 8.625, 6.25], 5e-6);
    assert_close(&targets.pg_advantages, &[3.41622, 8.7625, 7.125, 4.25], 5e-6);
}

#[test]
fn a_termination_cuts_the_trace_and_the_value() {
    let batch = Batch { terminated: vec![false, true, false, false], ..anchor() };
    let targets = batch.vtrace(&VtraceConfig::default());
    assert_close(&targets.vs, &[1.346_123, 2.0, 8.625, 6.25], 5e-7);
    assert_close(&targets.pg_advantages, &[0.846_123, 1.0, 7.125, 4.25], 5e-7);
}

#[test]
fn a_truncation_bootstraps_from_the_final_observation() {
    let batch = Batch {
        truncated: vec![false, true, false, false],
        final_values: vec![777.0, 1.25, 777.0, 777.0],
        ..anchor()
    };
    let targets = batch.vtrace(&VtraceConfig::default());
    assert_close(&targets.vs, &[1.718_601, 3.125, 8.625, 6.25], 5e-7);
    assert_close(&targets.pg_advantages, &[1.218_601, 2.125, 7.125, 4.25], 5e-7);
}

#[test]
fn wide_bounds_clip_each_ratio_at_its_own() {
    let config = VtraceConfig { rho_bar: 3.7, pg_rho_bar: 2.2, ..Default::default() };
    let targets = anchor().vtrace(&config);
    assert_close(&targets.vs, &[6.512_603, 17.604_387, 17.338_208, 13.552_698], 5e-7);
    assert_close(&targets.pg_advantages, &[6.012_603, 16.604_387, 22.583_241, 9.35], 5e-7);
}

#[test]
fn a_bootstrap_that_predicts_perfectly_leaves_no_advantage() {
    let batch = Batch {
        rewards: vec![0.0; 4],
        values: vec![7.0; 4],
        discounts: vec![1.0; 4],
        bootstrap: vec![7.0],
        ..anchor()
    };
    let targets = batch.vtrace(&VtraceConfig::default());
    assert_eq!((targets.vs, targets.pg_advantages), (vec![7.0; 4], vec![0.0; 4]));
}

#[test]
fn extreme_ratios_are_clipped_before_they_overflow() {
    let batch = Batch { log_rhos: vec![800.0, -800.0, f64::INFINITY, f64::NEG_INFINITY], ..anchor() };
    let targets = batch.vtrace(&VtraceConfig::default());
    let as_bound = Batch { log_rhos: vec![0.0, f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY], ..anchor() };
    assert_eq!(targets, as_bound.vtrace(&VtraceConfig::default()));
    let unbounded = f64::INFINITY;
    let open = VtraceConfig { rho_bar: unbounded, c_bar: unbounded, pg_rho_bar: unbounded, lambda: 1.0 };
    assert!(Batch { log_rhos: vec![0.0, 0.0, 0.0, 800.0], ..anchor() }.vtrace(&open).vs[3].is_finite());
}

#[test]
fn a_ratio_that_is_not_a_number_is_not_hidden_by_the_bound() {
    let batch = Batch { log_rhos: vec![0.0, 0.0, 0.0, f64::NAN], ..anchor() };
    assert!(batch.vtrace(&VtraceConfig::default()).vs[3].is_nan());
}

#[test]
fn contradicting_bounds_are_refused() {
    let refused =
        |config: VtraceConfig| vtrace(&config, &anchor().input(), &anchor().boundaries()).unwrap_err();
    let bounds = refused(VtraceConfig { rho_bar: 0.8, ..Default::default() });
    assert_eq!(bounds, AdvantageError::Bounds { rho_bar: 0.8, c_bar: 1.0 });
    let open_trace = refused(VtraceConfig { c_bar: f64::INFINITY, ..Default::default() });
    assert!(matches!(open_trace, AdvantageError::Bounds { .. }));
    let lambda = refused(VtraceConfig { lambda: 1.5, ..Default::default() });
    assert!(matches!(lambda, AdvantageError::Setting { name: "lambda", .. }));
    let nothing = refused(VtraceConfig { pg_rho_bar: f64::NAN, ..Default::default() });
    assert!(matches!(nothing, AdvantageError::Setting { name: "pg_rho_bar", .. }));
}
