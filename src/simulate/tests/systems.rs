//! What published systems are known for, in simulation. Ratios are within 15 % of what was published or estimated for
//! these assumptions, shares within 5 points; the figures stand in `docs/simulation.md`.

use super::*;

#[test]
fn taking_turns_takes_the_sum_of_both_and_one_step_the_longer() {
    let mut sync = standard("sync");
    (sync.lengths.prompt_sigma, sync.lengths.within_sigma) = (0.0, 0.0);
    sync.costs.train_seconds_per_token = 1e-3;
    // 3000 steps of 20 ms and 0.2 ms for each of 32 sequences, then 768,000 tokens over 8 devices.
    let generate = 3000.0 * (0.02 + 32.0 * 0.0002);
    let learn = 768_000.0 * 1e-3 / 8.0;
    let report = run(&sync);
    assert!((report.seconds_per_update - generate - learn).abs() < 0.01, "{report:?}");
    assert_eq!(report.old_fraction, 0.0);
    let mut one_step = SimulateConfig { system: "one_step".into(), ..sync };
    (one_step.devices.total, one_step.devices.trainers) = (16, 8);
    let report = run(&one_step);
    assert!((report.seconds_per_update - generate.max(learn)).abs() < 0.01, "{report:?}");
    assert_eq!((report.lag_max, report.old_fraction), (1, 1.0));
    assert!(report.overlap_efficiency > 0.999);
}

#[test]
fn asynchronous_rlhf_is_a_quarter_to_two_thirds_faster_on_the_same_devices() {
    let mut sync = standard("sync");
    (sync.lengths.prompt_sigma, sync.lengths.within_sigma) = (0.0, 0.0);
    // On half of the devices, learning takes as long as generating does.
    sync.costs.train_seconds_per_token = 5.1e-4;
    let mut one_step = SimulateConfig { system: "one_step".into(), ..sync.clone() };
    one_step.devices.trainers = 4;
    let gain = run(&one_step).tokens_per_second / run(&sync).tokens_per_second;
    println!("one step against turns: {gain:.3}");
    assert!((1.25..1.7).contains(&gain), "{gain}");
}

fn april(sigma: f64, submit: u64) -> (SimulationReport, SimulationReport) {
    let mut sync = standard("sync");
    (sync.lengths.prompt_sigma, sync.lengths.within_sigma) = (sigma, sigma / 3.0);
    sync.lengths.cap = 8192;
    (sync.engine.slots, sync.engine.step_seconds, sync.engine.sequence_seconds) = (Some(16), 0.01, 0.001);
    let april = SimulateConfig {
        system: "april".into(),
        schedule: schedule(&format!("round_end = {{ rule = \"groups\", submit = {submit} }}")),
        ..sync.clone()
    };
    (run(&sync), run(&april))
}

#[test]
fn april_gains_about_a_quarter_with_a_tail_of_lengths_and_nothing_without() {
    let (sync, double) = april(0.6, 64);
    near("april, twice as many groups", double.tokens_per_second / sync.tokens_per_second, 1.24);
    share("april, old tokens", double.old_fraction, 0.44);
    let (_, half_more) = april(0.6, 48);
    near("april, half as many more", half_more.tokens_per_second / sync.tokens_per_second, 1.23);
    // What a round leaves over goes on before anything new, so that it waits for one round at most, whatever N'.
    for (report, submitted) in [(&double, 64), (&half_more, 48)] {
        println!("april, mean lag with {submitted}: {:.3}", report.lag_mean);
        assert!(report.lag_mean < 0.5, "{submitted}: {}", report.lag_mean);
    }
    for submit in [32, 64] {
        let (sync, flat) = april(0.0, submit);
        let gain = flat.tokens_per_second / sync.tokens_per_second;
        assert!((gain - 1.0).abs() < 0.01, "answers of one length leave nothing to gain: {gain}");
    }
}

#[test]
fn areal_gains_with_the_tail_and_saturates_near_a_lead_of_two() {
    for (name, prompt, cap, expected) in [("mild", 0.6, 8192, 1.43), ("heavy", 0.9, 32_768, 3.5)] {
        let mut sync = standard("sync");
        (sync.lengths.prompt_sigma, sync.lengths.cap) = (prompt, cap);
        (sync.devices.total, sync.devices.trainers) = (16, 4);
        sync.costs.train_seconds_per_token = 16.0 * 40e-6;
        let base = run(&sync).tokens_per_second;
        let gain = |lead: u64| {
            let text = format!("admission.lead = {lead}\nconsume.max_head_lag = 99");
            run(&SimulateConfig { system: "areal".into(), schedule: schedule(&text), ..sync.clone() })
                .tokens_per_second
                / base
        };
        let (none, one, two, eight) = (gain(0), gain(1), gain(2), gain(8));
        println!("areal, {name}: {none:.2}, {one:.2}, {two:.2}, {eight:.2}");
        near(&format!("areal, {name} tail, lead 2"), two, expected);
        assert!((0.6..0.9).contains(&none), "without a lead, devices of one's own are slower: {none}");
        assert!(one < two && (eight / two - 1.0).abs() < 0.03, "saturated at 2");
    }
}

#[test]
fn k1_5_shortens_a_round_by_its_budget() {
    let base = run(&standard("sync"));
    for (tokens, time, carried, lag) in [(8192, 0.34, 0.28, 3), (2048, 0.12, 0.76, 15)] {
        let text = format!("round_end = {{ rule = \"budget\", tokens = {tokens} }}");
        let report = run(&SimulateConfig { schedule: schedule(&text), updates: 80, ..standard("kimi_k1_5") });
        near(
            &format!("k1.5, C = {tokens}, seconds"),
            report.seconds_per_update / base.seconds_per_update,
            time,
        );
        share(&format!("k1.5, C = {tokens}, carried"), report.carried_fraction, carried);
        assert_eq!(report.lag_max, lag);
        if tokens == 8192 {
            near("k1.5, throughput", report.tokens_per_second / base.tokens_per_second, 2.5);
        }
    }
}

#[test]
fn k3_shortens_a_round_by_its_share_of_answers() {
    let base = run(&standard("sync"));
    for (lambda, gain, carried, lag) in [(0.9, 2.2, 0.21, 3), (0.7, 3.0, 0.47, 7)] {
        let text = format!(
            "round_end = {{ rule = \"fraction\", lambda = {lambda}, refill = \"start_only\" }}\n\
             resume = {{ mode = \"reprefill\" }}"
        );
        let report = run(&SimulateConfig { schedule: schedule(&text), updates: 80, ..standard("kimi_k3") });
        near(&format!("k3, {lambda}, throughput"), report.tokens_per_second / base.tokens_per_second, gain);
        share(&format!("k3, {lambda}, carried"), report.carried_fraction, carried);
        assert!(report.lag_max <= lag, "{}", report.lag_max);
        if lambda > 0.8 {
            near("k3, 0.9, seconds", report.seconds_per_update / base.seconds_per_update, 0.40);
        }
    }
}

#[test]
fn dispatch_by_sample_keeps_a_pool_full_where_prompts_and_batches_do_not() {
    let pool = |unit: &str, group_size: u32, seed: u64, updates: u64| {
        let text = format!(
            "dispatch = {unit}\nconsume = {{ mask = {{ rule = \"none\" }} }}\n\
             round_end = {{ rule = \"ready\", max_old_fraction = 1.0 }}"
        );
        let mut table = schedule(&text);
        // The bias of the first batches is what this shows.
        let short = schedule("short_drop = { updates = 0, quantile = 0.25 }");
        table["consume"].as_table_mut().unwrap().extend(short);
        run(&SimulateConfig {
            batch: Some(128 / u64::from(group_size)),
            group_size: Some(group_size),
            seed,
            updates,
            warmup: updates / 3,
            schedule: table,
            ..standard("deepseek_v4_1")
        })
    };
    let occupied = |unit: &str| pool(unit, 8, 0, 60);
    let sample = occupied("{ unit = \"sample\" }");
    share("by sample, of the pool", sample.live_mean / 512.0, 0.99);
    share("by prompt", occupied("{ unit = \"prompt\" }").live_mean / 512.0, 0.50);
    share("by batch", occupied("{ unit = \"batch\", groups = 16 }").live_mean / 512.0, 0.88);
    near("steady length", sample.mean_length, 4200.0);
    // One first batch is too small for a mean. The estimate, 0.29 of the steady length, lies between whole groups, whose
    // longest answer must be short, and answers that count one by one.
    let first = |group_size: u32| -> f64 {
        let of =
            |seed: u64| pool("{ unit = \"sample\" }", group_size, seed, 2).first_batch_mean_length / 16.0;
        (0..16).map(of).sum()
    };
    share("first batch's length, of groups", first(8) / sample.mean_length, 0.36);
    share("first batch's length, of single answers", first(1) / sample.mean_length, 0.24);
}

#[test]
fn a_mixer_is_exact_where_launching_by_weight_is_not() {
    let source =
        |quota: u64| format!("[[sources]]\nname = \"q{quota}\"\nquota = {quota}\nweight = {quota}\n");
    let quotas = [16, 8, 8, 8].map(source).concat();
    let by_weight: Vec<&str> = quotas.lines().filter(|line| !line.starts_with("quota")).collect();
    let by_weight = by_weight.join("\n");
    let shares = |text: &str| {
        let mut config =
            SimulateConfig { batch: Some(40), schedule: schedule(text), ..standard("mimo_v2_6") };
        let models = [(1.0, 0.9), (5.0, 0.5), (20.0, 0.3), (2.0, 0.8)];
        config.lengths.median = 500.0;
        config.lengths.sources =
            models.map(|(length, acceptance)| SourceModel { length, acceptance }).to_vec();
        let report = run(&config);
        let all: u64 = report.consumed_by_source.iter().sum();
        report.consumed_by_source.iter().map(|&of| of as f64 / all as f64).collect::<Vec<f64>>()
    };
    assert_eq!(shares(&quotas), [0.4, 0.2, 0.2, 0.2], "exact");
    let drifted = shares(&format!(
        "dispatch = {{ unit = \"sample\" }}\nconsume = {{ max_head_lag = 99 }}\n{by_weight}"
    ));
    println!("launched by weight: {drifted:.3?}");
    for (index, (found, expected)) in drifted.iter().zip([0.54, 0.16, 0.08, 0.22]).enumerate() {
        share(&format!("source {index}"), *found, expected);
    }
}

#[test]
fn single_answers_do_not_wait_for_their_group() {
    let waits = |group_size: u32| {
        let config = SimulateConfig {
            batch: Some(256 / u64::from(group_size)),
            group_size: Some(group_size),
            ..standard("glm_sao")
        };
        run(&config).group_wait_seconds
    };
    assert_eq!(waits(1), 0.0);
    let of_eight = waits(8);
    println!("mean wait for the last of eight: {of_eight:.0} s");
    assert!(of_eight > 30.0, "{of_eight}");
}

#[test]
fn impala_scales_with_actors_until_the_learner_saturates() {
    let throughput = |actors: u64| {
        let mut config = standard("impala");
        (config.group_size, config.batch) = (Some(1), Some(32));
        config.schedule = schedule(&format!("admission.pool = {actors}"));
        // Actors that do not share an engine, unrolls of a second, updates of half a second.
        (config.engine.step_seconds, config.engine.sequence_seconds) = (0.01, 0.0);
        (config.lengths.median, config.lengths.prompt_sigma, config.lengths.within_sigma) = (100.0, 0.3, 0.0);
        config.engine.prefill_seconds = 0.0;
        config.devices.trainers = 1;
        config.costs.update_seconds = 0.5;
        run(&config).tokens_per_second
    };
    let rates = [16, 32, 64, 128, 256].map(throughput);
    println!("impala, 16 to 256 actors: {rates:.0?}");
    near("twice the actors", rates[1] / rates[0], 2.0);
    near("saturated", rates[4] / rates[3], 1.0);
    assert!(rates[3] > 1.15 * rates[1]);
}

#[test]
fn four_thousand_devices_are_planned_in_seconds() {
    let text = include_str!("../../../configs/simulate/four_thousand_devices.toml");
    let planned: SimulateConfig = toml::from_str(text).unwrap();
    let config = SimulateConfig { updates: 12, warmup: 6, ..planned };
    let areal = run(&config);
    let sync = run(&SimulateConfig { system: "sync".into(), schedule: toml::Table::new(), ..config });
    println!(
        "4,096 devices: {:.0} against {:.0} tokens/s, lag {:.2} up to {}",
        areal.tokens_per_second, sync.tokens_per_second, areal.lag_mean, areal.lag_max
    );
    assert!(areal.tokens_per_second > 1.2 * sync.tokens_per_second);
}
