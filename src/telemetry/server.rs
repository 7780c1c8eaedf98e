//! The HTTP server of a run: `/metrics` for Prometheus, `/healthz`, and a status page at `/`.
//!
//! It lives on one thread with a runtime of its own, so that a scrape neither waits for nor delays the run, and it
//! only reads: what an [`Exposition`] renders, and a [`StatusBoard`] that the run's thread writes to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use serde::Serialize;
use tokio::sync::watch;

use super::{Exposition, Listen, StatusBoard, TelemetryError};

/// How long `stop` waits for a slow reader.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Starts serving; `None` when `listen` is off.
    ///
    /// # Errors
    /// When the address that the user set cannot be listened on, or no thread can be started.
    pub fn start<S: Clone + Serialize + Send + 'static>(
        listen: Listen,
        metrics: Arc<impl Exposition>,
        status: Arc<StatusBoard<S>>,
    ) -> Result<Option<Self>, TelemetryError> {
        let Some(listener) = bind(listen)? else { return Ok(None) };
        let thread_error = |source| TelemetryError::Thread { source };
        let address = listener.local_addr().map_err(thread_error)?;
        listener.set_nonblocking(true).map_err(thread_error)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(thread_error)?;
        let (stop, stopped) = watch::channel(false);
        let routes = routes(metrics, status);
        let thread = std::thread::Builder::new()
            .name("metrics-server".into())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve(listener, routes, stopped)) {
                    tracing::warn!("the metrics server stopped: {error}");
                }
            })
            .map_err(thread_error)?;
        Ok(Some(Self { address, stop, thread: Some(thread) }))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the requests in hand (for half a second at most), closes the port and ends the thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own thread and does not concern the run.
            let _ = thread.join();
        }
    }
}

fn bind(listen: Listen) -> Result<Option<TcpListener>, TelemetryError> {
    let bind =
        |address| TcpListener::bind(address).map_err(|source| TelemetryError::Listen { address, source });
    match listen {
        Listen::Off => Ok(None),
        Listen::At(address) => bind(address).map(Some),
        Listen::Auto => match TcpListener::bind(Listen::DEFAULT) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
                if let Ok(address) = listener.local_addr() {
                    tracing::warn!(
                        "{} is taken, serving metrics at {address}; set telemetry.listen to choose the address",
                        Listen::DEFAULT
                    );
                }
                Ok(Some(listener))
            }
            result => {
                result.map(Some).map_err(|source| TelemetryError::Listen { address: Listen::DEFAULT, source })
            }
        },
    }
}

async fn serve(listener: TcpListener, routes: Router, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut signal = stopped.clone();
    let server = axum::serve(listener, routes).with_graceful_shutdown(async move {
        // An error means that the sender is gone, which is a stop too.
        let _ = signal.wait_for(|&stop| stop).await;
    });
    tokio::select! {
        result = server => result,
        () = async {
            let _ = stopped.wait_for(|&stop| stop).await;
            tokio::time::sleep(STOP_PATIENCE).await;
        } => Ok(()),
    }
}

fn routes<S: Clone + Serialize + Send + 'static>(
    metrics: Arc<impl Exposition>,
    status: Arc<StatusBoard<S>>,
) -> Router {
    Router::new()
        .route("/", get(|| async { Html(include_str!("status.html")) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/metrics",
            get(move || async move {
                ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], metrics.render()).into_response()
            }),
        )
        .route(
            "/status.json",
            get(move || async move {
                let json = serde_json::to_string(&status.get()).unwrap_or_default();
                ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], json)
                    .into_response()
            }),
        )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::telemetry::{Metrics, RunStatus, TokenMetrics, TokenProgress, TokenRunStatus};

    const ANY_PORT: &str = "127.0.0.1:0";

    fn start(listen: Listen) -> Result<Option<MetricsServer>, TelemetryError> {
        let status = Arc::new(StatusBoard::default());
        status.set(RunStatus { run: "first".into(), ..Default::default() });
        MetricsServer::start(listen, Arc::new(Metrics::new("cartpole")), status)
    }

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: forebay\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_health_and_status_are_served() {
        let server = start(Listen::At(ANY_PORT.parse().unwrap())).unwrap().unwrap();
        let metrics = get(server.address(), "/metrics");
        assert!(
            metrics.starts_with("HTTP/1.1 200") && metrics.contains("text/plain; version=0.0.4"),
            "{metrics}"
        );
        assert!(metrics.contains("\nforebay_build_info{"), "{metrics}");
        assert!(get(server.address(), "/healthz").ends_with("ok\n"));
        assert!(get(server.address(), "/status.json").contains("\"run\":\"first\""));
        assert!(get(server.address(), "/").contains("<!doctype html>"));
        assert!(get(server.address(), "/nothing").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn a_token_run_is_served_in_its_own_words() {
        let status = Arc::new(StatusBoard::default());
        let progress = TokenProgress { tokens: 1_200, reward_mean: Some(0.5), ..Default::default() };
        status.set(TokenRunStatus { task: "arithmetic".into(), progress, ..Default::default() });
        let metrics = Arc::new(TokenMetrics::new("arithmetic"));
        let listen = Listen::At(ANY_PORT.parse().unwrap());
        let server = MetricsServer::start(listen, metrics, status).unwrap().unwrap();
        assert!(get(server.address(), "/metrics").contains("\nforebay_queue_capacity "));
        let json = get(server.address(), "/status.json");
        assert!(json.contains("\"task\":\"arithmetic\"") && json.contains("\"tokens\":1200"), "{json}");
        assert!(!json.contains("env") && !json.contains("return"), "{json}");
    }

    #[test]
    fn stopping_frees_the_port_even_with_an_idle_connection() {
        let server = start(Listen::At(ANY_PORT.parse().unwrap())).unwrap().unwrap();
        let address = server.address();
        let _idle = TcpStream::connect(address).unwrap();
        server.stop();
        assert!(TcpListener::bind(address).is_ok());
    }

    #[test]
    fn a_port_that_the_user_set_must_be_free() {
        let taken = TcpListener::bind(ANY_PORT).unwrap();
        let address = taken.local_addr().unwrap();
        let message = start(Listen::At(address)).unwrap_err().to_string();
        assert!(
            message.contains(&address.to_string()) && message.contains("choose another port"),
            "{message}"
        );
    }

    #[test]
    fn the_default_port_is_replaced_when_it_is_taken() {
        // Whether this process or another one holds the port, it is taken afterwards.
        let _taken = TcpListener::bind(Listen::DEFAULT);
        let server = start(Listen::Auto).unwrap().unwrap();
        assert_ne!(server.address(), Listen::DEFAULT);
        assert!(get(server.address(), "/healthz").ends_with("ok\n"));
    }

    #[test]
    fn off_serves_nothing() {
        assert!(start(Listen::Off).unwrap().is_none());
    }
}
