# Built and run on the same Debian, so that the glibc it links is the glibc it meets. bookworm-slim rather than an image
# without a shell: it is larger, but Debian patches it, and the health check of deploy/compose.yaml needs a shell.

FROM rust:1-slim-bookworm AS build
WORKDIR /build
COPY . .
# Dependencies stay compiled in the cache mounts, across changes of Cargo.lock too. Cargo judges by modification times, and
# a checkout may be older than what the mount holds: `touch` makes our own crate be built every time.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    find src crates -type f -exec touch {} + && \
    cargo build --release --locked --bin tollgate && \
    cp target/release/tollgate /tollgate

FROM debian:bookworm-slim
# The roots that a `rediss://` store is verified with.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /tollgate /usr/local/bin/tollgate
COPY routes.yaml /etc/tollgate/routes.yaml
# By number: Kubernetes' runAsNonRoot cannot judge a name.
USER 65532:65532
EXPOSE 8080 9901
# In-flight requests are let finish within `drain_timeout`.
STOPSIGNAL SIGTERM
# No HEALTHCHECK: where the admin listener is, if there is one, is the configuration's. /livez and /readyz are there for it.
ENTRYPOINT ["/usr/local/bin/tollgate"]
CMD ["run", "--config", "/etc/tollgate/routes.yaml"]
