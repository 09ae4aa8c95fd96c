package model

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxMessage bounds what of a provider's words goes into an Error, in bytes.
const maxMessage = 2000

// Rejected is the error for an answer that says that the attempt failed: an HTTP status with, where the provider gave
// them, its error type and message. The type decides where it is known, because an error in the middle of a stream comes
// under the status 200.
func Rejected(status int, wireType, message string, retryAfter time.Duration) *Error {
	class, retryable := classify(status, wireType)
	message = strings.TrimSpace(strings.ToValidUTF8(message, "\uFFFD"))
	if message == "" {
		message = "the model provider refused the request"
		if status != 0 {
			message = fmt.Sprintf("the model provider answered %d %s", status, http.StatusText(status))
		}
	}
	if !retryable {
		retryAfter = 0
	}
	return &Error{Class: class, Status: status, Message: Shorten(message, maxMessage), Retryable: retryable, RetryAfter: retryAfter}
}

func classify(status int, wireType string) (class Class, retryable bool) {
	switch wireType {
	case "overloaded_error":
		return Overloaded, true
	case "rate_limit_error":
		return RateLimited, true
	case "billing_error":
		return Billing, false
	case "api_error", "timeout_error":
		if status < 400 || status >= 500 {
			return RequestFailed, true
		}
	case "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large":
		if status < 500 {
			return RequestFailed, false
		}
	}
	switch {
	case status == http.StatusTooManyRequests:
		return RateLimited, true
	case status == http.StatusServiceUnavailable || status == 529:
		return Overloaded, true
	case status == http.StatusPaymentRequired:
		return Billing, false
	case status == http.StatusRequestTimeout || status == http.StatusConflict || status >= 500:
		return RequestFailed, true
	case status >= 400:
		return RequestFailed, false
	}
	// An error under a status that means success, of a type nobody knows: most are passing faults of the server.
	return RequestFailed, true
}

// RetryAfter reads how long a provider asks us to wait from its headers: retry-after-ms, then retry-after in seconds or
// as a date. It is 0 if they do not say, and at most one hour.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	var wait time.Duration
	if ms, err := strconv.ParseFloat(header.Get("Retry-After-Ms"), 64); err == nil {
		wait = milliseconds(ms)
	} else if text := header.Get("Retry-After"); text == "" {
		return 0
	} else if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		wait = milliseconds(seconds * 1000)
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), time.Hour)
}

// milliseconds keeps a hostile number (NaN, infinite, huge) from overflowing the conversion.
func milliseconds(ms float64) time.Duration {
	const most = float64(time.Hour / time.Millisecond)
	if !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms, most) * float64(time.Millisecond))
}

// Shorten cuts text to at most limit bytes, at a character, with an ellipsis where something is missing.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := max(limit-len("…"), 0)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
