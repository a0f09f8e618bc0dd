pub mod raw_http;
