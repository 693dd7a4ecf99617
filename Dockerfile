# The image is one static program and nothing else: no shell, no libraries, no package that needs updates.
#   make page && docker build -t warren:0.1.0 --build-arg VERSION=0.1.0 .
FROM golang:1.26 AS build
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /warren ./cmd/node && mkdir -p /var/lib/warren

FROM scratch
COPY --from=build /warren /warren
# The user of the program cannot make its data directory itself.
COPY --from=build --chown=65532:65532 /var/lib/warren /var/lib/warren
ENV WARREN_DATA_DIR=/var/lib/warren/data
VOLUME /var/lib/warren
EXPOSE 5672 15672 5680
USER 65532:65532
ENTRYPOINT ["/warren"]
CMD ["serve"]
