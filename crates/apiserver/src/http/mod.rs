//! The HTTP face: requests in, answers out.
//!
//! The order is upstream's: who asks, may they, is there such a path, what do they say, and only then the
//! verbs.

pub(crate) mod body;
pub(crate) mod nonresource;
pub(crate) mod respond;
pub(crate) mod route;

use crate::request::form::{for_error, negotiate};
use crate::request::query::Query;
use crate::request::{RequestInfo, UserInfo};
use crate::state::Shared;
use crate::traffic::{Begun, Disconnected, Exchange, RecordedRequest, Traffic};
use crate::verbs;
use crate::verbs::connect::{self, Connect};
use crate::verbs::context::Context;
use axum::body::Body;
use body::Incoming;
use bytes::Bytes;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use jiff::Timestamp;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// How a request reached the server.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Over a connection, with the leaf of its verified client certificate (DER).
    Connection(Option<Arc<Vec<u8>>>),
    /// From this process, as a user that the server vouches for.
    Process(UserInfo),
    /// The same, past all faults of a test and unrecorded.
    Observer(UserInfo),
}

/// Answers a request, or cuts its connection where a fault of a test demands that.
pub(crate) async fn handle(
    server: Arc<Shared>,
    caller: Caller,
    request: Request<Body>,
    shutdown: Option<CancellationToken>,
) -> Result<Response<Body>, Disconnected> {
    let (mut parts, body) = request.into_parts();
    let errors = for_error(header_text(&parts.headers, &header::ACCEPT));
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let info = route::request_info(&parts.method, parts.uri.path(), &query);
    let traffic = server
        .traffic
        .clone()
        .filter(|_| !matches!(caller, Caller::Observer(_)));
    let user = identify(&server, caller, &parts);
    let mut asked = Asked {
        query,
        info,
        user,
        body: Incoming::Unread(body),
        recorded: None,
        shutdown: shutdown.clone(),
    };
    let exchange = match &traffic {
        Some(traffic) => Some(asked.begin(traffic, &parts).await),
        None => None,
    };
    let begun = match &exchange {
        Some(exchange) => exchange.before().await?,
        None => Begun::Passed,
    };
    let answered = match begun {
        Begun::Passed => answer(server, asked, &mut parts).await,
        Begun::Refused(error) => Err(error),
    };
    let mut response = answered.unwrap_or_else(|error| respond::error(&error, errors));
    let headers = response.headers_mut();
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    match exchange {
        Some(exchange) => exchange.after(response, shutdown).await,
        None => Ok(response),
    }
}

/// What a request says.
struct Asked {
    query: Query,
    info: RequestInfo,
    /// Who asks, or why that is not known.
    user: ApiResult<UserInfo>,
    body: Incoming,
    recorded: Option<Arc<RecordedRequest>>,
    shutdown: Option<CancellationToken>,
}

impl Asked {
    /// Records the request; its body is read for that unless it is a stream.
    async fn begin(&mut self, traffic: &Traffic, parts: &Parts) -> Exchange {
        let mut bytes = Bytes::new();
        if !connect::is_connect(&self.info) {
            let unread = std::mem::replace(&mut self.body, Incoming::Read(Ok(Bytes::new())));
            let read = unread.whole().await;
            bytes = read.clone().unwrap_or_default();
            self.body = Incoming::Read(read);
        }
        let request = RecordedRequest::new(parts, &self.info, self.user.as_ref().ok(), bytes);
        let exchange = traffic.begin(request);
        self.recorded = Some(exchange.request.clone());
        exchange
    }
}

/// Who asks.
fn identify(server: &Shared, caller: Caller, parts: &Parts) -> ApiResult<UserInfo> {
    match caller {
        Caller::Connection(certificate) => server.access.identify(
            &parts.headers,
            certificate.as_deref().map(Vec::as_slice),
            &server.store,
            Timestamp::now(),
        ),
        Caller::Process(user) | Caller::Observer(user) => {
            server.access.identify_as(user, &parts.headers, &server.store)
        }
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> &'a str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

async fn answer(server: Arc<Shared>, asked: Asked, parts: &mut Parts) -> ApiResult<Response<Body>> {
    let Asked {
        query,
        info,
        user,
        body,
        recorded,
        shutdown,
    } = asked;
    let user = user?;
    server.access.authorizer.check(&user, &info, &server.store)?;
    if !info.is_resource {
        return nonresource::answer(&server, parts, &query);
    }
    let snapshot = server.registry.snapshot();
    let resource = snapshot
        .by_gvr(&info.group, &info.version, &info.resource)
        .ok_or_else(ApiError::no_such_resource)?
        .clone();
    verbs::check_path(&resource, &info)?;
    if connect::is_connect(&info) {
        let connect = Connect {
            server: &server,
            resource: &resource,
            info: &info,
            query: &query,
            user: &user,
            shutdown,
        };
        return connect::run(connect, parts, body.stream()?).await;
    }
    let accept = header_text(&parts.headers, &header::ACCEPT);
    let mut form = negotiate(accept, shows_list(&info), resource.has_messages())?;
    form.pretty = query.flag("pretty");
    let content_type = header_text(&parts.headers, &header::CONTENT_TYPE);
    let media = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let gzip = header_text(&parts.headers, &header::ACCEPT_ENCODING)
        .split(',')
        .any(|coding| coding.trim().starts_with("gzip"));
    let errors = for_error(accept);
    let body = body.whole().await?;
    let context = Arc::new(Context {
        info,
        resource,
        query,
        user,
        body,
        content_type: media,
        user_agent: header_text(&parts.headers, &header::USER_AGENT).to_owned(),
        form,
        shutdown,
        recorded,
        warnings: Mutex::default(),
        server,
    });
    if !context.resource.deprecated.is_empty() {
        context.warn(vec![context.resource.deprecated.clone()]);
    }
    let result = verbs::run(&context).await;
    let mut response = match result.and_then(|answer| respond::answer(&context, answer, gzip)) {
        Ok(response) => response,
        Err(error) => respond::error(&error, errors),
    };
    respond::add_warnings(response.headers_mut(), &context.all_warnings());
    Ok(response)
}

fn shows_list(info: &RequestInfo) -> bool {
    matches!(info.verb.as_str(), "list" | "deletecollection")
}
