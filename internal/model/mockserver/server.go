package mockserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/scripted"
)

// SessionHeader names the session that a request belongs to. It is optional.
const SessionHeader = "X-Perdure-Session"

// Config says what a Server plays and how strict it is. The zero values of the numbers stand for the defaults.
type Config struct {
	Library *scripted.Library
	// Strict refuses what the real API refuses. Without it only requests that cannot be understood are refused.
	Strict bool
	// APIKey, if set, must come with each request as x-api-key or as a bearer token.
	APIKey string
	// MaxBody is the largest request in bytes; the default is 32 MiB. A larger one gets 413.
	MaxBody int64
	// MaxPromptTokens is the longest prompt, estimated at four bytes to a token; the default is 1,000,000.
	MaxPromptTokens int64
	// MaxRecords bounds the requests that are kept; the default is 1,000. Bodies of all records together take at most
	// 256 MiB. The oldest go first.
	MaxRecords int
	// OnStart and OnEnd, if set, are called from the request's goroutine when it was understood and when it has ended.
	OnStart func(Record)
	OnEnd   func(Record)
}

// Server is the handler.
type Server struct {
	config Config
	mux    *http.ServeMux
	record recorder
	cache  promptCache
}

// New returns a server. A library is the only thing that it needs.
func New(config Config) *Server {
	if config.MaxBody == 0 {
		config.MaxBody = 32 << 20
	}
	if config.MaxPromptTokens == 0 {
		config.MaxPromptTokens = 1_000_000
	}
	if config.MaxRecords == 0 {
		config.MaxRecords = 1000
	}
	s := &Server{config: config, mux: http.NewServeMux()}
	s.record.limit = config.MaxRecords
	s.mux.HandleFunc("POST /v1/messages", s.messages)
	s.mux.HandleFunc("GET /v1/models", s.models)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(r) {
		writeError(w, &Refusal{Status: http.StatusUnauthorized, Type: "authentication_error", Message: "the API key is missing or not the right one"})
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		writeError(w, &Refusal{Status: http.StatusNotFound, Type: "not_found_error", Message: "there is nothing at this path"})
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) authorized(r *http.Request) bool {
	if s.config.APIKey == "" {
		return true
	}
	key := r.Header.Get("X-Api-Key")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		key = bearer
	}
	return subtle.ConstantTimeCompare([]byte(key), []byte(s.config.APIKey)) == 1
}

// Refusal is an error answer.
type Refusal struct {
	Status     int
	Type       string
	Message    string
	RetryAfter time.Duration
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.Status, r.Type, r.Message) }

func invalid(format string, arguments ...any) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: fmt.Sprintf(format, arguments...)}
}

type errorBody struct {
	Type  string      `json:"type"`
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func writeError(w http.ResponseWriter, refusal *Refusal) {
	if refusal.RetryAfter > 0 {
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(refusal.RetryAfter.Milliseconds(), 10))
		w.Header().Set("Retry-After", strconv.FormatInt(int64((refusal.RetryAfter+time.Second-1)/time.Second), 10))
	}
	writeJSON(w, refusal.Status, errorBody{Type: "error", Error: errorDetail{Type: refusal.Type, Message: refusal.Message}})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	// Scripts may hold text that is no Unicode in raw parts; as much as can be said is better than nothing.
	body, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away is not a fault of this server.
	_, _ = w.Write(body)
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type entry struct {
		Type        string    `json:"type"`
		ID          string    `json:"id"`
		DisplayName string    `json:"display_name"`
		CreatedAt   time.Time `json:"created_at"`
	}
	list := struct {
		Data    []entry `json:"data"`
		HasMore bool    `json:"has_more"`
		FirstID *string `json:"first_id"`
		LastID  *string `json:"last_id"`
	}{Data: []entry{}}
	for _, script := range s.config.Library.Scripts() {
		list.Data = append(list.Data, entry{"model", scripted.Prefix + script.Name, "Scripted: " + script.Name, time.Unix(0, 0).UTC()})
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	body, refusal := s.read(w, r)
	var parsed *request
	if refusal == nil {
		parsed, refusal = s.parse(body)
	}
	record := Record{Header: withoutCredentials(r.Header), Body: body}
	if refusal != nil {
		record.Session, record.Status, record.Outcome, record.Message = r.Header.Get(SessionHeader), refusal.Status, Refused, refusal.Message
		s.end(&record)
		writeError(w, refusal)
		return
	}
	record.Session, record.Model = sessionOf(r, parsed), parsed.Model
	record.began = true
	s.record.begin(record.Session)
	if s.config.OnStart != nil {
		s.config.OnStart(record)
	}
	s.play(w, r, parsed, &record)
	s.end(&record)
	if record.Outcome == Broken && record.abort {
		// The only way in which net/http drops a connection without ending the body.
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, *Refusal) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.config.MaxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return body, &Refusal{Status: http.StatusRequestEntityTooLarge, Type: "request_too_large",
			Message: fmt.Sprintf("the request is larger than the limit of %d bytes", s.config.MaxBody)}
	}
	if err != nil {
		return body, invalid("the body could not be read: %v", err)
	}
	return body, nil
}

// end keeps the record. It is called before the last bytes are sent, so that a client which has its answer also finds the
// record; the call when everything is over is then without effect.
func (s *Server) end(record *Record) {
	if record.ended {
		return
	}
	record.ended = true
	if record.began {
		s.record.finish(record.Session)
	}
	s.record.add(*record)
	if s.config.OnEnd != nil {
		s.config.OnEnd(*record)
	}
}

func sessionOf(r *http.Request, parsed *request) string {
	if session := r.Header.Get(SessionHeader); session != "" {
		return session
	}
	if parsed.Metadata.UserID != "" {
		return parsed.Metadata.UserID
	}
	if len(parsed.Messages) == 0 {
		return ""
	}
	sum := sha256.Sum256(parsed.Messages[0].Content)
	return hex.EncodeToString(sum[:8])
}

// forLibrary is the request as a scripted model sees it.
func (r *request) forLibrary(session string) model.Request {
	request := model.Request{Model: r.Model, Session: session, System: r.systemText(), MaxTokens: int(r.MaxTokens)}
	for _, tool := range r.Tools {
		var parsed struct {
			Name        string         `json:"name"`
			Description string         `json:"description"`
			InputSchema jsontext.Value `json:"input_schema"`
		}
		if json.Unmarshal(tool, &parsed) == nil {
			request.Tools = append(request.Tools, model.Tool{Name: parsed.Name, Description: parsed.Description, InputSchema: parsed.InputSchema})
		}
	}
	for _, m := range r.Messages {
		request.Messages = append(request.Messages, model.Message{Role: m.Role, Content: m.Content})
	}
	return request
}
