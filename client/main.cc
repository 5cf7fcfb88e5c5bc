#include "client/app.h"

int main(int argc, char** argv) { return hbmtune::client::ClientMain(argc, argv); }
