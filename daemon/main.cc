#include "daemon/server_main.h"

int main(int argc, char** argv) { return hbmtune::daemon::ServerMain(argc, argv); }
