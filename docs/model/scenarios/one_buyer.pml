/* One buyer with a limit of one asks for two reservations; two units are there. The first may be cancelled. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define ONE_BUYER
#define STOCK 2
#define CANCEL_A 1
#include "../dropgate.pml"
