package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPostsAreRepeatedUnderOneKey(t *testing.T) {
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		switch len(keys) {
		case 1:
			panic(http.ErrAbortHandler) // the answer is lost
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, `{"id":"sesn_1"}`)
		}
	}))
	defer server.Close()
	s, err := newClient(t, server.URL, nil).CreateSession(t.Context(), map[string]string{})
	if err != nil || s.ID != "sesn_1" {
		t.Fatalf("%v, %v", s, err)
	}
	if len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("the keys are %q", keys)
	}
}

func TestRefusalsSayWhatTheServerSaid(t *testing.T) {
	for status, body := range map[int]string{
		400: `{"type":"error","error":{"type":"invalid_request_error","message":"events[0]: no"}}`,
		404: `<html>`,
		302: ``,
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Location", "http://elsewhere.example/")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		_, err := newClient(t, server.URL, nil).Session(t.Context(), "s")
		server.Close()
		var refused *Error
		if !errors.As(err, &refused) || refused.Status != status {
			t.Fatalf("%d: %v", status, err)
		}
		want := map[int]string{400: "events[0]: no", 404: "not from a Perdure server", 302: "final URL"}[status]
		if !strings.Contains(err.Error(), want) || requests != 1 {
			t.Errorf("%d: %q after %d requests", status, err, requests)
		}
	}
}

func TestBusyServerIsLeftInPeace(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3000")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	began := time.Now()
	_, err := newClient(t, server.URL, nil).Session(t.Context(), "s")
	var refused *Error
	if !errors.As(err, &refused) || refused.Status != 429 {
		t.Errorf("ends with %v", err)
	}
	if time.Since(began) > 5*time.Second {
		t.Error("it waited although the pause is longer than its patience")
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no scheme":         {BaseURL: "127.0.0.1:8700", Key: "k"},
		"other scheme":      {BaseURL: "ftp://x", Key: "k"},
		"no URL":            {Key: "k"},
		"password in URL":   {BaseURL: "http://user:secret@x", Key: "k"},
		"no key":            {BaseURL: "http://x"},
		"key with newline":  {BaseURL: "http://x", Key: "k\nk"},
		"key with a letter": {BaseURL: "http://x", Key: "ké"},
	} {
		_, err := New(o)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "é") {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}
