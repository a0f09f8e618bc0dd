# Built and run on the same Debian, so that the glibc it links is the glibc it meets. bookworm-slim rather than an image
# without a shell: it is larger, but Debian patches it. Nothing here needs the shell, not even the health check.

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
EXPOSE 8080 9902
# For `run`, `check`, `explain` and `health` alike.
ENV TOLLGATE_CONFIG=/etc/tollgate/routes.yaml
# In-flight requests are let finish within `drain_timeout`.
STOPSIGNAL SIGTERM
# Where probes are answered, it reads from the configuration. One that says `admin: off` needs --no-healthcheck.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/usr/local/bin/tollgate", "health"]
ENTRYPOINT ["/usr/local/bin/tollgate"]
CMD ["run", "--config", "/etc/tollgate/routes.yaml"]
