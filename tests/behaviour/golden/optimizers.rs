//! Update rules over several updates with clipping and a schedule; the clip and the schedule by themselves.

use candle_core::{Device, Tensor, Var, WithDType};
use forebay::learner::Real;
use forebay::learner::optimizer::{
    AdamwConfig, Optimizer, OptimizerConfig, RmspropTfConfig, RmspropTorchConfig, clip_scale, global_norm,
};
use forebay::learner::schedule::{Progress, ScheduleConfig, ScheduleKind};
use serde_json::Value;

use super::{Case, DOUBLE, Figures, SINGLE, check, defined, narrow, numbers, shape};

fn tensors<F: Real + WithDType>(list: &Value) -> anyhow::Result<Vec<Tensor>> {
    let tensor = |value| Ok(Tensor::from_vec(narrow::<F>(&numbers(value)), shape(value), &Device::Cpu)?);
    list.as_array().expect("a list of tensors").iter().map(tensor).collect()
}

fn flat<F: Real + WithDType>(tensor: &Tensor) -> anyhow::Result<Vec<Option<f64>>> {
    Ok(defined(&tensor.flatten_all()?.to_vec1::<F>()?))
}

fn config(case: &Case) -> OptimizerConfig {
    let (decay, epsilon) = (|| case.param("decay"), case.param("eps"));
    match case.word("kind") {
        "rmsprop_tf" => OptimizerConfig::RmspropTf(RmspropTfConfig { decay: decay(), epsilon }),
        "rmsprop_torch" => OptimizerConfig::RmspropTorch(RmspropTorchConfig { decay: decay(), epsilon }),
        "adamw" => OptimizerConfig::Adamw(AdamwConfig {
            beta1: case.param("beta1"),
            beta2: case.param("beta2"),
            epsilon,
            weight_decay: case.param("weight_decay"),
        }),
        other => panic!("unknown optimizer {other}"),
    }
}

fn schedule(case: &Case, linear: bool) -> ScheduleConfig {
    let kind = if linear { ScheduleKind::Linear } else { ScheduleKind::Constant };
    ScheduleConfig { learning_rate: case.param("lr"), kind, ramp_updates: 0 }
}

fn optimizer<F: Real + WithDType>(case: &Case) -> anyhow::Result<Figures> {
    let mut parameters = Vec::new();
    for (index, tensor) in tensors::<F>(case.input("params"))?.iter().enumerate() {
        parameters.push((format!("parameter_{index}"), Var::from_tensor(tensor)?));
    }
    let mut optimizer = Optimizer::new(&config(case), parameters.clone())?;
    let total = case.option("schedule_total_steps").map(|total| total as u64);
    let schedule = schedule(case, total.is_some());
    let (mut rates, mut norms, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for gradients in case.input("grads").as_array().expect("a list of updates") {
        let rate = schedule.at(optimizer.updates(), Progress::new(optimizer.updates(), total));
        let report = optimizer.step_with(&tensors::<F>(gradients)?, rate, case.bound("clip_norm"))?;
        rates.push(Some(rate));
        norms.push(Some(report.gradient_norm));
        for (_, parameter) in &parameters {
            after.extend(flat::<F>(parameter)?);
        }
    }
    let moment = |suffix: &str| -> anyhow::Result<Vec<Option<f64>>> {
        let mut figures = Vec::new();
        for (name, tensor) in optimizer.state()? {
            if name.ends_with(suffix) {
                figures.extend(flat::<F>(&tensor)?);
            }
        }
        Ok(figures)
    };
    Ok(vec![
        ("lr", rates),
        ("grad_norm", norms),
        ("params", after),
        ("first_moment", moment(".first_moment")?),
        ("second_moment", moment(".second_moment")?),
    ])
}

fn clip<F: Real + WithDType>(case: &Case) -> anyhow::Result<Figures> {
    let gradients = tensors::<F>(case.input("grads"))?;
    let norm = global_norm(gradients.iter().map(|gradient| ("gradient", gradient)))?;
    let scale = clip_scale(norm, case.bound("clip_norm"));
    let mut clipped = Vec::new();
    for gradient in &gradients {
        clipped.extend(flat::<F>(&(gradient * scale)?)?);
    }
    Ok(vec![("norm", vec![Some(norm)]), ("scale", vec![Some(scale)]), ("clipped", clipped)])
}

fn linear_rate(case: &Case) -> Figures {
    let total = Some(case.param("total_steps") as u64);
    let schedule = schedule(case, true);
    let rates = case
        .numbers("steps")
        .into_iter()
        .map(|step| Some(schedule.at(step as u64, Progress::new(step as u64, total))));
    vec![("lr", rates.collect())]
}

fn compute<F: Real + WithDType>(case: &Case) -> anyhow::Result<Figures> {
    match case.function() {
        "optimizer" => optimizer::<F>(case),
        "clip_global_norm" => clip::<F>(case),
        "linear_lr" => Ok(linear_rate(case)),
        _ => case.unknown(),
    }
}

#[test]
fn golden_optimizers() {
    check("optimizers", DOUBLE, compute::<f64>);
    check("optimizers", SINGLE, compute::<f32>);
}
