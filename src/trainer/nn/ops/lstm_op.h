/* lstm_op.h - what the LSTM has in common on all devices: its parameters, and the number of gates.
 */
#ifndef CDDPI_NN_OPS_LSTM_H
#define CDDPI_NN_OPS_LSTM_H

/* Parameters, in the reverse of the order in which backward completes them. They are registered in
 * the order of nn.LSTM. */
enum cddpi_lstm_param {
    CDDPI_LSTM_WEIGHT_HH,
    CDDPI_LSTM_WEIGHT_IH,
    CDDPI_LSTM_BIAS_IH,
    CDDPI_LSTM_BIAS_HH
};
enum { CDDPI_LSTM_GATES = 4 };

#endif
