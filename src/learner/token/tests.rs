//! Properties that hold for every objective.
