package wire

const (
	maxTries = 10 // of one call in all
	maxDials = 3  // in a row, of a host that is not reached
)

// rule says what becomes of a call that failed in one way.
type rule struct {
	kind  string // of the [agent.ModelError]
	when  string
	tries int    // in all; 1: it is not made again
	fix   string // where all tries have failed
}

// rules are all ways in which a call fails, apart from that the user breaks it off.
func rules() []rule {
	const (
		crowd   = "wait a while, or run fewer agents at a time"
		network = "check the network, and go on when it holds"
	)
	return []rule{
		{"rate_limit", "status 429; `rate_limit_error` in the stream", maxTries, crowd},
		{"overloaded", "status 529; `overloaded_error` in the stream", maxTries, crowd},
		{"server_error", "status 408, 409, 425 or 5xx; `api_error`, `timeout_error` or an unknown error in the stream",
			maxTries, crowd},
		{"cut", "the connection breaks before or within the answer; a stream that ends before its end, or is damaged once " +
			"it has begun", maxTries, network},
		{"idle", "no byte for two minutes, not even a sign of life", maxTries, network},
		{"unreachable", "no such host, connection refused, a proxy that is not there, no end to the TLS handshake",
			maxDials, ""},
		{"tls", "a certificate or an encryption that cannot be used", 1, ""},
		{"proxy", "a proxy that asks for a password, or refuses", 1, ""},
		{"bad_answer", "a redirect; status 200 without an event stream; a stream of another API; an answer that is too large",
			1, ""},
		{"bad_request", "another status of 400 to 499; `invalid_request_error` in the stream", 1, ""},
		{"auth", "status 401 or 403; `authentication_error`, `permission_error`", 1, ""},
		{"account", "status 402; the account cannot pay, or its quota is used up", 1, ""},
		{"unknown_model", "status 404; `not_found_error`", 1, ""},
		{"context_overflow", "status 413; the conversation is too long: it is summed up, where that is on", 1, ""},
	}
}

// ruleOf is the rule for failures of a kind.
func ruleOf(kind string) rule {
	for _, r := range rules() {
		if r.kind == kind {
			return r
		}
	}
	return rule{kind: kind, tries: 1}
}
