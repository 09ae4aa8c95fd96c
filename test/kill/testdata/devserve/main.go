package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/perdure/perdure"
)

func main() {
	perdure.Reexec()
	f := flag.NewFlagSet("serve", flag.ExitOnError)
	data, listen, _ := f.String("data", "", ""), f.String("listen", "", ""), f.Bool("print-ready", false, "")
	f.Parse(os.Args[2:])
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := perdure.Open(ctx, perdure.Options{Dir: *data, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Providers: []perdure.Provider{{Name: "anthropic", Kind: "anthropic", BaseURL: os.Getenv("ANTHROPIC_BASE_URL"), APIKey: "k"}}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ready := map[string]string{}
	keys, _ := s.Keys(ctx)
	if len(keys) == 0 {
		ready["api_key"], _, _ = s.CreateKey(ctx, "first")
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ready["url"] = "http://" + l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	server := &http.Server{Handler: s.Handler()}
	go server.Serve(l)
	json.NewEncoder(os.Stdout).Encode(ready)
	<-ctx.Done()
	server.Close()
	<-done
	s.Close()
}
